// Lanes: what each node did when, and, looked at closely, the messages between them.
import { choice, el, key, onColors, seconds } from "./dom.js";
import { choose, end, goTo, isEnd, linksNow, nodes, now, on, rounded, rounds, rowOf, view } from "./model.js";
import { keep, oneOf, state } from "./state.js";
import { LANE, LANE_KEY, LEFT, paintStrips, pan, zoom } from "./strips.js";

const MOST_LANES = 80;
const span = { from: 0, to: 1, whole: true, which: "all" };
const LOST = ["lost", "undeliverable"];
const WHICH = /** @type {[string, string][]} */ ([["all", "all nodes"], ["near", "the chosen node and its neighbors"], ["stall", "nodes of stalls"]]);

/** @returns {HTMLElement} */
export function lanes() {
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { class: "lanes", role: "img", "aria-label": "a lane for each node: when it trained, waited, mixed, was down; its waits are in the panel of each node" }));
  const said = el("p", { class: "hint" }), tools = el("div", { class: "tools" });
  const section = el("section", { id: "lanes" }, el("h2", {}, "Who did what when"), tools,
    key(LANE_KEY),
    el("div", { class: "lanebox", tabindex: 0, role: "region", "aria-label": "lanes" }, canvas), said);
  const draw = () => { if (view.data && !section.hidden) said.textContent = paint(canvas); };
  const look = () => { keepSpan(); draw(); };
  let due = false;
  const soon = () => { if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); } };
  const head = () => {
    span.which = oneOf("lanes", WHICH.map(([name]) => name));
    tools.replaceChildren(
      choice("lanes", WHICH, span.which, (lanes) => { keep({ lanes: lanes === "all" ? null : lanes }); span.which = lanes; draw(); }),
      ...[["closer", 0.4], ["further", 2.5]].map(([words, factor]) => el("button", { id: words === "closer" ? "zoom" : null, click: () => { zoom(span, limits(), Number(factor), middle()); look(); } }, String(words))),
      ...[["earlier", -0.5], ["later", 0.5]].map(([words, by]) => el("button", { click: () => { pan(span, limits(), Number(by)); look(); } }, String(words))),
      el("button", { click: () => { [span.from, span.to] = [0, end()]; look(); } }, "whole run"));
  };
  on(["data"], () => {
    section.hidden = view.data.frame.by_round || !view.data.by_node.ends;
    if (!document.getElementById("zoom")) spanFromAddress();
    span.to = Math.max(span.from + 1e-9, span.whole ? end() : Math.min(span.to, end()));
    head();
    soon();
  });
  on(["at", "chosen", "status"], soon);
  window.addEventListener("hashchange", () => { if (view.data) { spanFromAddress(); head(); soon(); } });
  pointers(canvas, said, look);
  onColors(draw);
  new ResizeObserver(soon).observe(section);
  return section;
}

/** What the lanes show by the address, or the whole run. */
function spanFromAddress() {
  const [from, to] = (state().get("zoom") ?? "").split(",").map(Number), sound = from >= 0 && from < to && from < end();
  [span.from, span.to] = sound ? [from, Math.min(to, end())] : [0, end()];
  span.whole = !sound;
}

/** Keep in the address what the lanes show: what is drawn is what a link shows, to the last digit. */
function keepSpan() {
  span.whole = span.from <= 0 && span.to >= end();
  if (!span.whole) [span.from, span.to] = [span.from, span.to].map((each) => rounded(each, span.to - span.from));
  keep({ zoom: span.whole ? null : `${span.from},${span.to}` });
}

/** Around what one looks closer: the handle where it is in view, but at the end of the run the middle of what is drawn. */
function middle() {
  if (!isEnd() && now() >= span.from && now() <= span.to) return now();
  const { by_node, waits } = view.data, last = Math.max(0, ...by_node.ends.filter((/** @type {number|null} */ each) => each !== null), ...waits.until);
  return (Math.min(span.from, last) + Math.min(span.to, last)) / 2;
}

function limits() {
  return { from: 0, to: end() };
}

/** The nodes that have a lane now. */
function shown() {
  let of = nodes();
  if (span.which === "near" && view.node !== null) {
    const near = new Set([view.node]);
    for (const link of linksNow().values()) { if (link.src === view.node) near.add(link.dst); if (link.dst === view.node) near.add(link.src); }
    of = of.filter((node) => near.has(node));
  } else if (span.which === "stall") {
    const inside = new Set(view.data.stalls.flatMap((/** @type {any} */ stall) => stall.nodes));
    of = of.filter((node) => inside.has(node));
  }
  if (of.length <= MOST_LANES) return of;
  const waited = new Map(), { waits } = view.data;
  for (let i = 0; i < waits.node.length; i++) waited.set(waits.node[i], (waited.get(waits.node[i]) ?? 0) + waits.until[i] - waits.since[i]);
  const longest = new Set([...of].sort((a, b) => (waited.get(b) ?? 0) - (waited.get(a) ?? 0)).slice(0, MOST_LANES));
  return of.filter((node) => longest.has(node));
}

/** @param {HTMLCanvasElement} canvas @returns {string} What the picture leaves out. */
function paint(canvas) {
  const of = shown(), { bands, frame, messages } = view.data;
  const shades = bands.filter((/** @type {any} */ band) => band.kind === "partition").flatMap((/** @type {any} */ band) => band.spans.map((/** @type {[number, number|null]} */ [from, to]) => [from, to ?? end()]));
  const lost = (/** @type {number} */ i) => messages.arrived[i] === null || LOST.includes(messages.classes[messages.fate[i]]);
  const many = paintStrips(canvas, span, { nodes: of, end: end(), bars: bars(of), shades, messages, lost, chosen: view.node, at: now() });
  const left = frame.num_nodes - of.length, hidden = many ? "Messages are drawn when you look closer." : messages.recorded ? `Of messages that were delivered: ${messages.recorded}.` : messages.every > 1 ? `One of ${messages.every} messages is kept.` : "";
  return [left > 0 && span.which === "all" ? `The ${of.length} nodes that waited longest have a lane.` : "", hidden, "A click sets the moment; a click on a name chooses the node. Drag to look closer."].filter(Boolean).join(" ");
}

/** What these nodes did: rounds that they ended, waits, stalls, outages. @param {number[]} of @returns {Generator<[number, number, number, string]>} */
function* bars(of) {
  const { by_node, waits, outages, stalls } = view.data, kept = rounds();
  for (const node of of) {
    const row = /** @type {number} */ (rowOf(node));
    for (let place = 0; place < kept.length; place++) {
      const until = by_node.ends[row * kept.length + place], took = by_node.round_s?.[row * kept.length + place];
      if (until === null || took === null || took === undefined) continue;
      yield [node, until - took, until, "c2"];
      yield [node, until - took, Math.min(until, until - took + (by_node.train_s?.[row * kept.length + place] ?? 0)), "c0"];
    }
  }
  for (let i = 0; i < waits.node.length; i++) yield [waits.node[i], waits.since[i], waits.until[i], "c1"];
  for (const stall of stalls) for (const [node, since] of Object.entries(stall.since)) yield [Number(node), Number(since), stall.until_s ?? (stall.over ? stall.found_s : end()), "c1"];
  for (const outage of outages) yield [outage.node, outage.since, outage.until ?? end(), outage.why === "pause" ? "c5" : "fail"];
}

/** @param {HTMLCanvasElement} canvas @param {HTMLElement} said @param {() => void} look */
function pointers(canvas, said, look) {
  const time = (/** @type {number} */ x) => span.from + (x - LEFT) / (canvas.clientWidth - LEFT - 4) * (span.to - span.from);
  let began = -1;
  canvas.addEventListener("pointerdown", (event) => { began = event.offsetX; });
  canvas.addEventListener("pointerup", (event) => {
    const node = shown()[Math.floor(event.offsetY / LANE)];
    if (event.offsetX < LEFT) { if (node !== undefined) choose(node); }
    else if (began >= LEFT && Math.abs(event.offsetX - began) > 8) { const ends = [time(began), time(event.offsetX)].sort((a, b) => a - b); [span.from, span.to] = [Math.max(0, ends[0]), Math.min(end(), ends[1])]; look(); }
    else goTo(rounded(time(event.offsetX), span.to - span.from));
    began = -1;
  });
  canvas.addEventListener("pointermove", (event) => {
    const node = shown()[Math.floor(event.offsetY / LANE)], at = time(event.offsetX), { waits } = view.data;
    if (node === undefined || event.offsetX < LEFT) return;
    for (let i = 0; i < waits.node.length; i++) {
      if (waits.node[i] === node && waits.since[i] <= at && at <= waits.until[i]) {
        const missing = waits.missing[i].length ? `, in vain for ${waits.missing[i].join(", ")}` : "";
        said.textContent = `node ${node}, round ${waits.round[i]}: waited ${seconds(waits.until[i] - waits.since[i])} from ${seconds(waits.since[i])}${waits.last[i] === null ? "" : `, last for ${waits.last[i]}`}${missing}; it ended by: ${waits.ended[waits.how[i]]}`;
        return;
      }
    }
    said.textContent = `node ${node} at ${seconds(at)}`;
  });
}
