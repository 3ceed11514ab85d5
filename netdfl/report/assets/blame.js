// What cost the run what, as `netdfl blame` found it: its table, and the lanes of the run with and without a candidate.
import { el, key, onColors, reveal } from "./dom.js";
import { on, view } from "./model.js";
import { keep } from "./state.js";
import { LANE_KEY, paintStrips, pan, zoom } from "./strips.js";

/** @typedef {{cells: string[], order: (number|null)[]}} BlameRow */
/** @typedef {{end_s: number, until_s: number, bars: {node: number[], since: number[], until: number[], what: number[]}, messages: any}} KeptLanes */
/** @typedef {{row: number, words: string[], at_s: number|null, nodes: number[], num_nodes: number, lanes: KeptLanes[]}} Parting */

/** The colors of bars, by the numbers of BARS in netdfl/record/kept_blame.py. */
const BARS = ["c2", "c0", "c1", "c5", "fail"], GAIN = 2;
const span = { from: 0, to: 1 }, sorted = { by: GAIN, down: true };
let open = -1;
/** @type {() => void} */
let draw = () => {};
/** @type {HTMLElement|null} */
let shown = null;
/** @type {() => void} */
let list = () => {};

/** @returns {HTMLElement} */
export function blame() {
  const place = el("div"), lede = el("p"), below = el("div");
  shown = el("div", { id: "parted", "aria-live": "polite" });
  const section = el("section", { id: "blame" }, el("h2", {}, "Blame: what cost it what"), lede, place, below, shown);
  list = () => {
    const found = view.data.blame;
    lede.textContent = `Target ${found.target}: ${found.took} in the run. Each row is the run without one candidate, under the same luck.${found.shown.length ? " A candidate that is a button shows both runs from the moment at which they part." : ""}`;
    place.replaceChildren(grid(found));
    below.replaceChildren(el("ul", {}, ...[...(found.left_out ? [`${found.left_out} more rows are left out`] : []), ...found.sentences].map((words) => el("li", {}, words))));
  };
  on(["data"], () => {
    section.hidden = !view.data.blame;
    if (section.hidden) return;
    list();
    if (open >= 0) openBlame(open, false);
  });
  onColors(() => draw());
  new ResizeObserver(() => draw()).observe(section);
  return section;
}

/** The table; a click on a heading orders it. @param {any} found */
function grid(found) {
  const { by, down } = sorted, values = (/** @type {number} */ i) => found.rows[i].order[by];
  const order = found.rows.map((/** @type {BlameRow} */ _, /** @type {number} */ i) => i);
  order.sort((/** @type {number} */ a, /** @type {number} */ b) => (down ? -1 : 1) * compare(found.rows[a].cells[by], found.rows[b].cells[by], values(a), values(b), down));
  const kept = new Set(found.shown.map((/** @type {Parting} */ each) => each.row));
  const head = found.head.map((/** @type {string} */ words, /** @type {number} */ i) => el("th", { scope: "col", "aria-sort": by !== i ? "none" : down ? "descending" : "ascending" },
    el("button", { "data-sort": i, click: () => { [sorted.by, sorted.down] = [i, by === i ? !down : i === GAIN]; list(); document.querySelector(`#blame [data-sort="${i}"]`)?.focus(); } }, `${words}${by !== i ? "" : down ? " ▾" : " ▴"}`)));
  const body = order.map((/** @type {number} */ i) => el("tr", {}, ...found.rows[i].cells.map((/** @type {string} */ words, /** @type {number} */ column) =>
    el("td", { class: words.length > 24 ? "long" : null }, column || !kept.has(i) ? words : el("button", { "data-row": i, "aria-pressed": String(i === open), "aria-controls": "parted", click: () => openBlame(i) }, words)))));
  return el("div", { class: "scroll high", tabindex: 0, role: "region", "aria-label": "what each candidate cost" }, el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body)));
}

/** Cells by their numbers, those without one last whichever way; by their words where a column has no numbers. @param {string} one @param {string} other @param {number|null} a @param {number|null} b @param {boolean} down */
function compare(one, other, a, b, down) {
  if (a === null && b === null) return one.localeCompare(other, "en", { numeric: true });
  if (a === null || b === null) return (a === null) === down ? -1 : 1;
  return a - b;
}

/** Show where the run parts from that without a candidate, and both from then on. @param {number} row @param {boolean} scroll */
export function openBlame(row, scroll = true) {
  const found = view.data.blame, parting = /** @type {Parting|undefined} */ (found?.shown.find((/** @type {Parting} */ each) => each.row === row));
  open = parting ? row : -1;
  document.querySelectorAll("#blame [data-row]").forEach((each) => each.setAttribute("aria-pressed", String(Number(each.getAttribute("data-row")) === open)));
  draw = () => {};
  shown?.replaceChildren();
  if (!parting) return;
  keep({ blame: row });
  const { cells } = found.rows[row], [at, first, second] = parting.words;
  shown?.append(el("h3", {}, `With and without ${cells[0]}`), el("p", { class: "sentence" }, first === undefined ? at : `${capital(at)}. The run: ${first}. Without ${cells[0]}: ${second}.`));
  if (parting.lanes.length === 2) shown?.append(...both(parting, [`The run: ${found.took}`, `Without ${cells[0]}: ${cells[1]}`]));
  if (scroll && shown) reveal(shown);
}

/** @param {string} words */
function capital(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** The lanes of both runs, one above the other, on one axis of time. @param {Parting} parting @param {string[]} titles */
function both(parting, titles) {
  const cut = parting.lanes.filter((each) => each.until_s < each.end_s), from = parting.at_s ?? 0;
  const limits = { from, to: Math.max(from + 1e-9, cut.length ? Math.min(...cut.map((each) => each.until_s)) : Math.max(...parting.lanes.map((each) => each.end_s))) };
  const canvases = titles.map((title) => /** @type {HTMLCanvasElement} */ (el("canvas", { class: "lanes", role: "img", "aria-label": `${title}; a lane for each of ${parting.nodes.length} nodes: when it trained, waited, mixed, was down` })));
  const said = el("p", { class: "hint" }), around = () => span.from <= from ? from : (span.from + span.to) / 2;
  const left = [parting.num_nodes > parting.nodes.length ? `Of ${parting.num_nodes} nodes the ${parting.nodes.length} that the difference reached first have a lane.` : "", cut.length ? "What happened later is not kept." : ""];
  const paint = () => {
    const many = parting.lanes.map((lanes, i) => paintStrips(canvases[i], span, { nodes: parting.nodes, end: lanes.end_s, bars: bars(lanes), shades: [], messages: lanes.messages, lost: (k) => lanes.messages.lost[k], chosen: null, at: from }));
    said.textContent = [...left, many.some(Boolean) ? "Messages are drawn when you look closer." : ""].filter(Boolean).join(" ");
  };
  const button = (/** @type {string} */ words, /** @type {() => void} */ then) => el("button", { click: () => { then(); paint(); } }, words);
  [span.from, span.to] = [limits.from, limits.to];
  draw = paint;
  requestAnimationFrame(() => draw());
  return [el("div", { class: "tools" }, button("closer", () => zoom(span, limits, 0.4, around())), button("further", () => zoom(span, limits, 2.5, around())), button("earlier", () => pan(span, limits, -0.5)), button("later", () => pan(span, limits, 0.5)), button("from where they part", () => { [span.from, span.to] = [limits.from, limits.to]; })),
    key(LANE_KEY), ...titles.map((title, i) => el("figure", { class: "chart" }, el("figcaption", {}, title), canvases[i])), said];
}

/** @param {KeptLanes} lanes @returns {Generator<[number, number, number, string]>} */
function* bars({ bars: { node, since, until, what } }) {
  for (let i = 0; i < node.length; i++) yield [node[i], since[i], until[i], BARS[what[i]]];
}
