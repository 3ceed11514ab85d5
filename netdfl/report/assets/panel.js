// What there is to know of the chosen node, or of the chosen link, at the moment of the handle.
import { bytes, count, el, figure, percent, seconds, table } from "./dom.js";
import { choose, FATES, hasAllMessages, linksNow, nodes, now, on, ownFigures, phaseOf, quantile, valueOf, view } from "./model.js";

const MOST = 60;

/** @returns {HTMLElement} */
export function panel() {
  const box = el("div", { class: "panel", id: "panel", role: "region", "aria-label": "the chosen node or link", tabindex: 0 });
  const draw = () => {
    const open = [...box.querySelectorAll("details")].map((each) => each.open);
    box.replaceChildren(...(view.node !== null ? ofNode(view.node) : view.link ? ofLink(...view.link) : overview()));
    box.querySelectorAll("details").forEach((each, i) => { each.open = open[i] ?? false; });
  };
  on(["data", "at", "chosen", "status"], draw);
  return box;
}

/** Nothing is chosen: the links that lost most, and the nodes that are furthest back. */
function overview() {
  const links = [...linksNow().values()].sort((a, b) => (b.of.lost ?? 0) - (a.of.lost ?? 0) || b.nbytes - a.nbytes).slice(0, 8);
  const slow = nodes().map((node) => /** @type {[number, number]} */ ([node, Number(valueOf("round", node))])).sort((a, b) => a[1] - b[1] || a[0] - b[0]).slice(0, 8);
  const lost = links.some((link) => link.of.lost);
  return [el("h3", {}, "Choose a node or a link"), el("p", { class: "hint" }, "In the graph, by its number above it, or here."),
    ...(links.length ? [table(["link", "sent", "lost", "bytes"], links.map((link) => [linkButton(link.src, link.dst), count(link.sent), lostOf(link), bytes(link.nbytes)]), lost ? "Links that lost most" : "Links that carried most")] : []),
    table(["node", "rounds done", "now"], slow.map(([node, done]) => [nodeButton(node), String(done), phaseOf(node).words]), "Nodes furthest back")];
}

/** @param {import("./model.js").Traffic} link */
function lostOf(link) {
  const over = link.sent - (link.of.unfinished ?? 0);
  return link.of.lost ? `${count(link.of.lost)} (${percent(link.of.lost / Math.max(1, over))})` : "0";
}

/** @param {number} node */
export function nodeButton(node) {
  return el("button", { click: () => choose(node) }, `node ${node}`);
}

/** @param {number} src @param {number} dst */
export function linkButton(src, dst) {
  return el("button", { click: () => choose(null, [src, dst]), "data-link": `${src}-${dst}` }, `${src} → ${dst}`);
}

function close() {
  return el("button", { click: () => choose(null), "aria-label": "choose nothing" }, "×");
}

/** @param {number} node */
function ofNode(node) {
  const { events, partition, waits, fleet, frame } = view.data;
  const facts = [["round", `${valueOf("round", node)} rounds done`], ["now", phaseOf(node).words]];
  for (const [name, words, of] of /** @type {[string, string, (v: any) => string][]} */ ([["test_accuracy", "accuracy", percent], ...ownFigures().map(([name, words]) => [name, words, figure]), ["train_loss", "loss", figure], ["weight", "push-sum weight", figure], ["bytes_sent", "bytes sent", bytes]])) {
    const value = valueOf(name, node);
    if (value !== null) facts.push([words, of(value)]);
  }
  if (partition?.counts[node]) {
    const counts = partition.counts[node], total = counts.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
    const classes = counts.map((/** @type {number} */ n, /** @type {number} */ i) => [n, partition.classes[i]]).filter((/** @type {any[]} */ each) => each[0] > 0).sort((/** @type {any[]} */ a, /** @type {any[]} */ b) => b[0] - a[0]);
    facts.push(["data", `${count(total)} samples; ${classes.slice(0, 10).map((/** @type {any[]} */ each) => `class ${each[1]}: ${each[0]}`).join(", ")}`]);
  }
  /** @type {(string|Node)[][]} */
  const long = [];
  for (let i = 0; i < waits.node.length && long.length < 4 * MOST; i++) {
    if (waits.node[i] === node && waits.since[i] <= now()) long.push([String(waits.round[i]), seconds(waits.since[i]), seconds(Math.min(now(), waits.until[i]) - waits.since[i]), waits.last[i] === null ? "–" : String(waits.last[i]), waits.missing[i].join(", ") || "–", waits.until[i] > now() ? "still" : waits.ended[waits.how[i]]]);
  }
  const told = events.filter((/** @type {any} */ event) => event.nodes.includes(node) && (frame.by_round || event.at_s <= now()));
  const around = [...linksNow().values()].filter((link) => link.src === node || link.dst === node);
  return [el("h3", {}, node === fleet.server ? `Server, node ${node}` : `Node ${node}`, " ", close()),
    el("dl", { class: "numbers" }, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, el("small", {}, value))))),
    more("Its links", around.length, () => table(["link", "sent", "lost", "bytes"], around.slice(0, MOST).map((link) => [linkButton(link.src, link.dst), count(link.sent), lostOf(link), bytes(link.nbytes)]), "Its links until now", "high")),
    more("Its waits", long.length, () => table(["round", "since", "for", "last came", "missing", "ended"], long.slice(-MOST).reverse(), "Its waits, the last first", "high")),
    more("What happened to it", told.length, () => table(["at", "event", "details"], told.slice(-MOST).reverse().map((/** @type {any} */ event) => [seconds(event.at_s), event.kind, event.details]), "Events, the last first", "high")),
    ...log(node)];
}

/** @param {string} words @param {number} number @param {() => Node} made */
function more(words, number, made) {
  return number ? el("details", {}, el("summary", {}, `${words} (${number})`), made()) : el("span");
}

/** The node's log: inside the page where it was written there, else asked for where the page is served. @param {number} node */
function log(node) {
  const text = view.data.logs?.[node], live = document.getElementById("app")?.dataset.live;
  if (text !== undefined && !live) return [more("Its log, the end of it", text.split("\n").length, () => el("pre", { tabindex: 0 }, text))];
  if (!live) return [];
  const place = el("pre", { tabindex: 0, hidden: true });
  return [el("button", { click: async () => { const answer = await fetch(`${live}log/${node}`); place.hidden = false; place.textContent = answer.ok ? await answer.text() || "its log is empty" : "it has no log"; } }, "show its log"), place];
}

/** @param {number} src @param {number} dst */
function ofLink(src, dst) {
  const link = linksNow().get(`${src}-${dst}`), { messages, rules, links, frame } = view.data;
  const head = el("h3", {}, `Link ${src} → ${dst} `, close());
  if (!link) return [head, el("p", {}, hasAllMessages() ? "Nothing crossed it until now." : "Nothing crossed it, or it is not among the links that are kept.")];
  const place = links.src.findIndex((/** @type {number} */ each, /** @type {number} */ i) => each === src && links.dst[i] === dst);
  const mine = rules.filter((/** @type {any} */ rule) => rule.of === "default" || (rule.links ?? []).includes(place));
  /** @type {(string|Node)[][]} */
  const rows = [];
  for (let i = messages.src.length - 1; i >= 0 && rows.length < MOST; i--) {
    if (messages.src[i] !== src || messages.dst[i] !== dst || (frame.by_round ? messages.round[i] >= now() : messages.sent[i] > now())) continue;
    rows.push([String(messages.round[i]), messages.kinds[messages.kind[i]], frame.by_round ? "–" : seconds(messages.sent[i]), frame.by_round || messages.arrived[i] === null ? "–" : seconds(messages.arrived[i] - messages.sent[i]), bytes(messages.nbytes[i]), messages.fates[messages.fate[i]]]);
  }
  const fates = FATES.filter((name) => link.of[name]).map((name) => `${count(link.of[name])} ${name}`);
  return [head, el("p", {}, `${count(link.sent)} messages, ${bytes(link.nbytes)}${hasAllMessages() ? " until now" : " in the whole run"}: ${fates.join(", ")}.`),
    table(["", "asked", "measured"], compared(link, mine), "What its rules ask for, and what was measured"),
    mine.length ? table(["of", "what", "rule", "comes to", "by"], mine.map((/** @type {any} */ rule) => [rule.of, rule.key, rule.rule, rule.words, rule.event === null ? "links" : `events[${rule.event}]`]), "Its rules; those of events only while these last") : el("p", { class: "hint" }, "It has no rules, or the run has not ended: the rules are known then."),
    more(hasAllMessages() ? "Its messages" : "Some of its messages", rows.length, () => table(["round", "kind", "sent", "took", "size", "fate"], rows, "The last ones first", "high"))];
}

/** Loss, delay and rate as asked for and as measured. @param {import("./model.js").Traffic} link @param {any[]} mine */
function compared(link, mine) {
  const steady = mine.filter((rule) => rule.event === null);
  const asked = (/** @type {string} */ figure_) => { const of = steady.filter((rule) => figure_ in rule.figures); const closest = of[of.length - 1]; return closest ? closest.figures[figure_] : null; };
  const over = Math.max(1, link.sent - (link.of.unfinished ?? 0)), loss = asked("stationary_loss"), mean = asked("mean_ns"), rate = asked("rate_bps");
  const byEvents = mine.some((rule) => rule.event !== null && "stationary_loss" in rule.figures);
  const fastest = link.delays.length ? Math.min(...link.delays) : null, median = quantile(link.delays, 0.5);
  const measured = median ? 8 * link.nbytes / link.sent / median : null;
  return [
    ["loss", `${loss === null ? "none" : percent(loss)}${byEvents ? ", and by events" : ""}`, percent((link.of.lost ?? 0) / over)],
    ["delay", mean === null ? "–" : `${seconds(mean / 1e9)}, mean of the rule`, median === null ? "–" : `${seconds(median)}, median of all`],
    ["beyond its fastest", "–", median === null || fastest === null ? "–" : `${seconds(Math.round(1e9 * (median - fastest)) / 1e9)}: queues, size, spread`],
    ["rate", rate === null ? "–" : `${figure(rate / 1e6)} Mbit/s`, measured === null ? "–" : `${figure(measured / 1e6)} Mbit/s, a mean message over the median delay`],
  ];
}
