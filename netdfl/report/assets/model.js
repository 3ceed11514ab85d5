// What is shown, of which moment; and what the run's data say of that moment. No element of the page is touched here.
import { seconds } from "./dom.js";

/** @typedef {Object<string, any>} Data the page's data; see netdfl/report/data/whole.py */

export const view = {
  /** @type {any} */ data: null,
  /** The moment that is shown: exact, also between two steps of the handle. */ at: 0,
  /** @type {number|null} */ node: null,
  /** @type {[number, number]|null} */ link: null,
  /** @type {any} */ status: null,
  follow: true,
};

/** @type {Map<string, Set<() => void>>} */
const listeners = new Map();

/** Call `then` when any of `what` (data, at, chosen, status) changes. @param {string[]} what @param {() => void} then */
export function on(what, then) {
  for (const each of what) listeners.set(each, (listeners.get(each) ?? new Set()).add(then));
}

/** @param {string} what */
export function changed(what) {
  for (const then of listeners.get(what) ?? []) then();
}

/** The last step of the handle lies this share behind the run's end, so that all counts are in. */
const LAST_SHARE = 2e-9;

/** The last moment of the run. */
export function end() {
  return view.data.frame.moments.at(-1);
}

/** Show exactly this moment; where no time passes, the step of the handle at or after it. @param {number} time */
export function goTo(time) {
  const { by_round, moments } = view.data.frame;
  const wanted = by_round ? moments[placeOf(time)] : Math.max(0, time);
  view.at = wanted >= end() * (1 - LAST_SHARE) ? end() : wanted;
  view.follow = isEnd();
  changed("at");
}

/** Show the moment at a share of a width. @param {number} share */
export function goToShare(share) {
  goTo(rounded(share * end(), end()));
}

/** A time without the digits that no screen tells apart where `seconds` are as wide as it. @param {number} time @param {number} seconds */
export function rounded(time, seconds) {
  return Number(time.toFixed(Math.max(0, Math.min(12, Math.ceil(4 - Math.log10(seconds))))));
}

/** The place of the first step of the handle at or after a time. @param {number} time */
export function placeOf(time) {
  const moments = view.data.frame.moments;
  const found = moments.findIndex((/** @type {number} */ moment) => moment >= time);
  return found < 0 ? moments.length - 1 : found;
}

/** The place of the last step of the handle at or before a time. @param {number} time */
export function placeBefore(time) {
  const place = placeOf(time);
  return view.data.frame.moments[place] > time ? Math.max(0, place - 1) : place;
}

export function now() {
  return view.at;
}

export function isEnd() {
  return view.at >= end();
}

/** @param {number|null} node @param {[number, number]|null} link */
export function choose(node, link = null) {
  view.node = node;
  view.link = link;
  changed("chosen");
}

/** Take (new) data; the handle stays at the end where it follows. @param {Data} data */
export function take(data) {
  const time = view.data && !view.follow ? now() : null;
  view.data = data;
  rows = null;
  traffic = null;
  graph = null;
  view.at = time === null ? end() : Math.min(time, end());
  changed("data");
}

/** @type {Map<number, number>|null} */
let rows = null;

/** The row of a node in what is kept by node; undefined where it is not shown. @param {number} node */
export function rowOf(node) {
  rows ??= new Map(nodes().map((each, row) => [each, row]));
  return rows.get(node);
}

/** @returns {number[]} The nodes that are shown. */
export function nodes() {
  const frame = view.data.frame;
  return frame.nodes ?? Array.from({ length: frame.num_nodes }, (_, node) => node);
}

/** @returns {number[]} The rounds of which figures by node are kept. */
export function rounds() {
  const frame = view.data.frame;
  return frame.rounds ?? Array.from({ length: frame.num_rounds }, (_, round) => round);
}

/** The place, among the kept rounds, of the last that a node had ended; -1: none. @param {number} node */
export function lastRound(node, time = now()) {
  const { frame, by_node } = view.data, row = rowOf(node), kept = rounds();
  if (row === undefined) return -1;
  let found = -1;
  for (let place = 0; place < kept.length; place++) {
    const end = frame.by_round ? kept[place] + 1 : by_node.ends?.[row * kept.length + place];
    if (end === null || end === undefined) continue;
    if (end > time) break;
    found = place;
  }
  return found;
}

/** How many rounds a node has behind it. @param {number} node */
export function roundsDone(node) {
  if (isEnd() && view.status) {
    const told = view.status.nodes?.[node];
    if (told) return told.phase === "finished" ? told.round + 1 : told.round;
  }
  const place = lastRound(node);
  return place < 0 ? 0 : rounds()[place] + 1;
}

/** Figures that a task has of its own and that are kept of each node: `test_mae`, and its words. @returns {[string, string][]} */
export function ownFigures() {
  return Object.keys(view.data.by_node).filter((name) => name.startsWith("test_") && name !== "test_accuracy").map((name) => [name, name.replaceAll("_", " ")]);
}

/** The last value of a node that was known at a moment; null where there is none. @param {string} name @param {number} node */
export function valueOf(name, node) {
  if (name === "round") return roundsDone(node);
  if (name === "train_loss" && isEnd() && view.status?.nodes?.[node]?.loss != null) return view.status.nodes[node].loss;
  const matrix = view.data.by_node[name], row = rowOf(node), width = rounds().length;
  if (!matrix || row === undefined) return null;
  for (let place = lastRound(node); place >= 0; place--) {
    const value = matrix[row * width + place];
    if (value !== null) return value;
  }
  return null;
}

/** What a node was doing: a word, and for whom it waited. @param {number} node @returns {{phase: string, words: string}} */
export function phaseOf(node, time = now()) {
  const { frame, outages, waits, by_node } = view.data;
  const told = isEnd() ? view.status?.nodes?.[node]?.phase : null;
  const down = outages.find((/** @type {any} */ each) => each.node === node && each.since <= time && (each.until === null || time < each.until));
  if (down?.why === "absent") return { phase: "down", words: `not there yet: joins ${down.until === null ? "later" : `at ${Number(down.until.toPrecision(4))} s`}` };
  if (told === "absent") return { phase: "down", words: "not there yet" };
  if (down) return down.why === "pause" ? { phase: "paused", words: "paused" } : { phase: "down", words: `down: ${down.why}` };
  if (told === "crashed" || told === "died") return { phase: "down", words: told };
  const standing = standingAt(node, time);
  if (standing) return standing;
  const waits_ = isEnd() && view.data.head.state === "running" ? view.status?.waiting?.find((/** @type {any} */ wait) => wait.node === node) : null;
  if (waits_) return { phase: "waiting", words: `waiting in round ${waits_.round}${waits_.awaited.length ? ` for ${waits_.awaited.join(", ")}` : ""}, since ${seconds(waits_.since_s)}` };
  if (frame.by_round) return { phase: "", words: `${roundsDone(node)} rounds done` };
  for (let i = 0; i < waits.node.length && waits.since[i] <= time; i++) {
    if (waits.node[i] === node && time < waits.until[i]) {
      const whom = [...new Set([...waits.missing[i], ...(waits.last[i] === null ? [] : [waits.last[i]])])];
      const words = `waiting in round ${waits.round[i]}${whom.length ? ` for ${whom.join(", ")}` : ""}, since ${seconds(waits.since[i])}`;
      return { phase: "waiting", words };
    }
  }
  const row = rowOf(node), width = rounds().length;
  if (row === undefined || !by_node.ends) return { phase: "", words: "" };
  let place = lastRound(node, time) + 1;
  while (place < width && (by_node.ends[row * width + place] ?? null) === null) place++;  // rounds that it was down in
  const end = by_node.ends[row * width + place];
  if (place >= width || end === null || end === undefined) {
    return told === "running" ? { phase: "running", words: "running" } : { phase: "ended", words: "its last round is over" };
  }
  const begin = end - (by_node.round_s?.[row * width + place] ?? 0);
  if (time < begin) return { phase: "", words: "between two rounds" };
  const training = time < begin + (by_node.train_s?.[row * width + place] ?? 0);
  return training ? { phase: "training", words: "training" } : { phase: "mixing", words: "mixing, sending, or anything else" };
}

/** What a stall says of a node. @param {number} node @param {number} time */
function standingAt(node, time) {
  for (const stall of view.data.stalls) {
    const since = stall.since[node];
    const until = stall.until_s ?? (stall.over ? stall.found_s : Infinity);
    if (since !== undefined && since <= time && time <= until) {
      const whom = stall.waits.filter((/** @type {number[]} */ wait) => wait[0] === node).map((/** @type {number[]} */ wait) => wait[1]);
      return { phase: "waiting", words: `stalled: waits for ${whom.join(", ")} since ${seconds(since)}` };
    }
  }
  return null;
}

/** @typedef {{src: number, dst: number, sent: number, nbytes: number, delays: number[], of: Object<string, number>}} Traffic */
/** @type {{at: number, links: Map<string, Traffic>}|null} */
let traffic = null;
/** @type {{round: number, links: Set<string>}|null} */
let graph = null;

/** Whether every message is among the data, so that links can be counted up to any moment. */
export function hasAllMessages() {
  return view.data.messages.every === 1;
}

/** The round in which most of the fleet is. */
export function fleetRound() {
  const done = nodes().slice(0, 400).map((node) => lastRound(node)).sort((a, b) => a - b);
  const place = done[Math.floor(done.length / 2)] ?? -1;
  return place < 0 ? 0 : Math.min(rounds()[place] + (isEnd() ? 0 : 1), view.data.frame.num_rounds - 1);
}

/** What each link carried until now, or, where not all messages are kept, in the whole run. @returns {Map<string, Traffic>} */
export function linksNow() {
  if (traffic?.at === view.at) return traffic.links;
  traffic = { at: view.at, links: hasAllMessages() ? counted() : whole() };
  return traffic.links;
}

/** Kinds of messages that go along the graph; others answer them, or go elsewhere. */
const ALONG = ["data", "board", "request", "reply"];

/** The links of the round in which most of the fleet is, as `src-dst`: those that models went over, or will. Needs all messages. */
export function linksOfRound() {
  const round = fleetRound(), { messages } = view.data;
  if (graph?.round === round) return graph.links;
  graph = { round, links: new Set() };
  for (let i = 0; i < messages.src.length; i++) {
    if (messages.round[i] === round && ALONG.includes(messages.kinds[messages.kind[i]])) graph.links.add(`${messages.src[i]}-${messages.dst[i]}`);
  }
  return graph.links;
}

function counted() {
  const { messages, frame } = view.data, time = now();
  /** @type {Map<string, Traffic>} */
  const found = new Map();
  for (let i = 0; i < messages.src.length; i++) {
    const sent = frame.by_round ? messages.round[i] + 1 : messages.sent[i];
    if (sent > time) { if (frame.by_round) continue; else break; }
    const edge = `${messages.src[i]}-${messages.dst[i]}`;
    let link = found.get(edge);
    if (!link) found.set(edge, link = { src: messages.src[i], dst: messages.dst[i], sent: 0, nbytes: 0, delays: [], of: {} });
    link.sent += 1;
    link.nbytes += messages.nbytes[i];
    const arrived = frame.by_round ? sent : messages.arrived[i] ?? sent;
    const fate = arrived > time ? "unfinished" : messages.classes[messages.fate[i]];
    link.of[fate] = (link.of[fate] ?? 0) + 1;
    if (!frame.by_round && messages.arrived[i] !== null && arrived <= time) link.delays.push(arrived - sent);
  }
  return found;
}

function whole() {
  const { links } = view.data;
  /** @type {Map<string, Traffic>} */
  const found = new Map();
  for (let i = 0; i < links.src.length; i++) {
    /** @type {Object<string, number>} */
    const of = {};
    for (const name of FATES) if (links[name]?.[i]) of[name] = links[name][i];
    const delays = links.median && links.median[i] !== null ? [links.fastest[i], links.median[i], links.slow[i]] : [];
    found.set(`${links.src[i]}-${links.dst[i]}`, { src: links.src[i], dst: links.dst[i], sent: links.sent[i], nbytes: links.nbytes[i], delays, of });
  }
  return found;
}

export const FATES = ["delivered", "lost", "undeliverable", "late", "duplicate", "refused", "unfinished"];

/** @param {number[]} values @param {number} share */
export function quantile(values, share) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b), place = share * (sorted.length - 1), low = Math.floor(place);
  return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}
