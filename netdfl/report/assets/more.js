// Where each node's time went, who has which data, and, of large fleets, how figures are spread.
import { bytes, color, el, figure, fit, onColors, percent, seconds, swatches } from "./dom.js";
import { choose, linksNow, nodes, on, quantile, valueOf, view } from "./model.js";

const SPENT = /** @type {[string, string][]} */ ([["compute", "compute"], ["link", "on a link"], ["late", "in vain, until a deadline or a notice of loss"], ["behind", "for nodes that were behind"], ["rest", "anything else: mixing, sending, saving"]]);
const MOST_BARS = 300, MOST_NAMED = 24, LARGE = 100;

/** @returns {HTMLElement[]} */
export function more() {
  return [spent(), queues(), spreads(), data()];
}

/**
 * Stacked bars on a canvas, one for each node or link; a click chooses it.
 * @param {string} id @param {string} title @param {string} words
 * @param {() => {names: (string|number)[], chosen: (place: number) => boolean, choose: (place: number) => void, parts: {name: string, values: number[]}[], of: (v: number) => string}|null} make
 */
function bars(id, title, words, make) {
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { class: "lanes", role: "img", "aria-label": `${title}; ${words}` }));
  const legend = el("div"), said = el("p", { class: "hint" }, words);
  const section = el("section", { id }, el("h2", {}, title), legend, canvas, said);
  /** @type {ReturnType<typeof make>} */
  let made = null;
  const COLORS = ["c0", "c1", "c3", "c5", "soft", "c2", "c4"];
  const tint = (/** @type {number} */ i) => i < COLORS.length ? color(COLORS[i]) : `hsl(${(i * 47) % 360} 55% 55%)`;
  const draw = () => {
    made = make();
    section.hidden = !made;
    if (!made) return;
    const { context, width } = fit(canvas, 170), count = made.names.length, sums = made.names.map((_, i) => made.parts.reduce((sum, part) => sum + (part.values[i] ?? 0), 0));
    const most = Math.max(1e-12, ...sums), wide = Math.min(60, (width - 56) / count);
    made.names.forEach((_, i) => {
      let top = 150;
      made?.parts.forEach((part, k) => { const high = 140 * (part.values[i] ?? 0) / most; context.fillStyle = tint(k); context.fillRect(54 + i * wide, top - high, Math.max(0.7, wide * 0.86), high); top -= high; });
      if (made?.chosen(i)) { context.strokeStyle = color("ink"); context.lineWidth = 2; context.strokeRect(54 + i * wide, 8, wide, 144); }
    });
    context.fillStyle = color("soft");
    context.font = "11px system-ui, sans-serif";
    context.fillText(made.of(most), 2, 14);
    context.fillText("0", 2, 152);
    const room = Math.max(...made.names.map((name) => String(name).length)) > 5 ? 76 : 44, step = Math.ceil(count / Math.max(1, Math.floor((width - 56) / room)));
    for (let i = 0; i < count; i += step) context.fillText(String(made.names[i]), 54 + i * wide, 165);
  };
  on(["data", "chosen"], draw);
  const explain = () => {
    const parts = made?.parts ?? [], left = parts.length - MOST_NAMED;
    legend.replaceChildren(swatches(parts.slice(0, MOST_NAMED).map((part, i) => [tint(i), part.name])), left > 0 ? el("p", { class: "hint" }, `and ${left} more`) : "");
  };
  on(["data"], explain);
  canvas.addEventListener("click", (event) => {
    const place = Math.floor((event.offsetX - 54) / Math.min(60, (canvas.clientWidth - 56) / (made?.names.length || 1)));
    if (made && place >= 0 && place < made.names.length) made.choose(place);
  });
  onColors(() => { draw(); explain(); });
  new ResizeObserver(() => { if (view.data) draw(); }).observe(section);
  return section;
}

/** Bars of nodes. @param {number[]} nodes */
function ofNodes(nodes) {
  return { names: nodes, chosen: (/** @type {number} */ place) => nodes[place] === view.node, choose: (/** @type {number} */ place) => choose(nodes[place]) };
}

/** How long messages stood in queues, link by link: what they took beyond the fastest of their link. */
function queues() {
  return bars("queues", "Delay on each link", "Of messages that arrived, in the whole run, the links with the longest waits first: the fastest message of the link, and what others took beyond it, in queues, by their size, by the rule's spread. A click chooses a link.", () => {
    const { links } = view.data;
    if (!links.median || view.data.frame.by_round) return null;
    if (!links.slow.some((/** @type {number|null} */ slow, /** @type {number} */ i) => slow > 1.001 * links.fastest[i])) return null;
    let order = links.src.map((/** @type {any} */ _, /** @type {number} */ i) => i).filter((/** @type {number} */ i) => links.median[i] !== null && links.src[i] !== links.dst[i]);
    if (order.length < 2) return null;
    order = order.sort((/** @type {number} */ a, /** @type {number} */ b) => links.slow[b] - links.fastest[b] - links.slow[a] + links.fastest[a]).slice(0, MOST_BARS);
    const part = (/** @type {string} */ name, /** @type {(i: number) => number} */ of) => ({ name, values: order.map(of) });
    return {
      names: order.map((/** @type {number} */ i) => `${links.src[i]} → ${links.dst[i]}`), of: seconds,
      chosen: (place) => view.link !== null && view.link[0] === links.src[order[place]] && view.link[1] === links.dst[order[place]],
      choose: (place) => choose(null, [links.src[order[place]], links.dst[order[place]]]),
      parts: [part("the fastest message", (i) => links.fastest[i]), part("beyond it, half of the messages", (i) => links.median[i] - links.fastest[i]), part("beyond it, one of twenty", (i) => links.slow[i] - links.median[i])].filter((each) => each.values.some((/** @type {number} */ value) => value > 1e-9)),
    };
  });
}

function spent() {
  return bars("spent", "Where each node's time went", "Seconds of all its rounds. A click chooses a node.", () => {
    const table = view.data.time_by_node;
    if (!table || view.data.frame.by_round) return null;
    const total = table.node.map((/** @type {any} */ _, /** @type {number} */ i) => SPENT.reduce((sum, [name]) => sum + (table[name][i] ?? 0), 0));
    let order = table.node.map((/** @type {any} */ _, /** @type {number} */ i) => i);
    if (order.length > MOST_BARS) order = [...order].sort((a, b) => total[b] - total[a]).slice(0, MOST_BARS);
    return { ...ofNodes(order.map((/** @type {number} */ i) => table.node[i])), of: seconds, parts: SPENT.map(([name, words]) => ({ name: words, values: order.map((/** @type {number} */ i) => table[name][i]) })).filter((part) => part.values.some(Boolean)) };
  });
}

function data() {
  return bars("data-of-nodes", "Who got which data", "Samples of each class at each client. A click chooses a node.", () => {
    const of = view.data.partition;
    if (!of || of.counts.length > MOST_BARS) return null;
    return { ...ofNodes(of.counts.map((/** @type {any} */ _, /** @type {number} */ i) => i)), of: figure, parts: of.classes.map((/** @type {string} */ name, /** @type {number} */ i) => ({ name: `class ${name}`, values: of.counts.map((/** @type {number[]} */ row) => row[i]) })) };
  });
}

/** Histograms of large fleets. */
function spreads() {
  const boxes = el("div", { class: "charts" }), tools = el("div", { class: "tools" });
  const section = el("section", { id: "spreads" }, el("h2", {}, "How the fleet is spread"), el("p", { class: "hint" }, "How many nodes, or links, have which value at the moment of the handle."), tools, boxes);
  const draw = () => {
    section.hidden = view.data.frame.num_nodes <= LARGE;
    if (section.hidden) return;
    const of = (/** @type {string} */ name) => nodes().map((node) => valueOf(name, node)).filter((value) => value !== null).map(Number);
    const links = [...linksNow().values()];
    const all = /** @type {[string, number[], (v: number) => string, number[]?][]} */ ([
      ["accuracy of nodes", of("test_accuracy"), percent], ["loss of nodes", of("train_loss"), figure], ["rounds done", of("round"), figure], ["bytes sent by nodes", of("bytes_sent"), bytes],
      ["bytes by link", links.map((link) => link.nbytes), bytes], ["share lost by link", links.map((link) => (link.of.lost ?? 0) / Math.max(1, link.sent)), percent], ["median delay by link", links.map((link) => quantile(link.delays, 0.5)).filter((value) => value !== null), seconds],
      ["outgoing links of nodes", view.data.fleet.degrees.map((/** @type {number[]} */ each) => each[0]), figure, view.data.fleet.degrees.map((/** @type {number[]} */ each) => each[1])]]);
    boxes.replaceChildren(...all.filter(([, values]) => new Set(values).size > 1).map(([title, values, words, weights]) => histogram(title, values, words, weights)));
  };
  let due = false;
  const soon = () => { if (!due) { due = true; setTimeout(() => { due = false; draw(); }, 150); } };
  on(["data"], draw);
  on(["at"], soon);
  onColors(draw);
  return section;
}

/** @param {string} title @param {number[]} values @param {(v: number) => string} words @param {number[]} [weights] */
function histogram(title, values, words, weights) {
  const low = Math.min(...values), high = Math.max(...values), bins = new Array(24).fill(0);
  values.forEach((value, i) => { bins[Math.min(23, Math.floor(24 * (value - low) / (high - low)))] += weights?.[i] ?? 1; });
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { class: "lanes", role: "img", "aria-label": `${title}: from ${words(low)} to ${words(high)}, most at ${words(low + (bins.indexOf(Math.max(...bins)) + 0.5) * (high - low) / 24)}` }));
  requestAnimationFrame(() => {
    const { context, width } = fit(canvas, 120), most = Math.max(...bins);
    bins.forEach((number, i) => { context.fillStyle = color("c0"); context.fillRect(8 + i * (width - 16) / 24, 100 - 92 * number / most, (width - 16) / 24 - 1, 92 * number / most); });
    context.fillStyle = color("soft");
    context.font = "11px system-ui, sans-serif";
    context.fillText(words(low), 8, 114);
    context.textAlign = "right";
    context.fillText(words(high), width - 8, 114);
    context.fillText(`${most} at most`, width - 8, 12);
  });
  return el("figure", { class: "chart" }, el("h3", {}, title), canvas);
}
