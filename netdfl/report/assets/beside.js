// Runs beside each other: their curves, what differs between their scenarios, and any key against any figure.
import { apart, bytes, choice, color, el, figure, metric, onColors, percent, seconds, table } from "./dom.js";
import { downloads, LOG_AXIS, LOG_SCALE, picture, smoothed, SMOOTHINGS } from "./picture.js";
import { keep, oneOf } from "./state.js";

/** @typedef {[string, string, (v: any) => string]} Column */
const CURVES = /** @type {Column[]} */ ([["test_accuracy", "test accuracy", percent], ["mean_local_accuracy", "accuracy, mean of local models", percent], ["test_loss", "test loss", figure], ["error", "error", figure], ["consensus_distance", "consensus distance", figure], ["weight_sum", "push-sum weight", figure]]);
const FIGURES = /** @type {Column[]} */ ([["accuracy", "accuracy", percent], ["loss", "test loss", figure], ["error", "error", figure], ["nbytes", "bytes sent", bytes], ["duration_s", "time it took", seconds], ["virtual_duration_s", "virtual time", seconds], ["rounds", "rounds", figure], ["nodes", "nodes", figure], ["stalls", "stalls", figure], ["seed", "seed", String]]);
const AXES = /** @type {[string, string, (v: number) => string][]} */ ([["round", "round", String], ["at_s", "time in the run", seconds], ["nbytes", "bytes sent", bytes]]);
export const beside = el("section", { id: "beside", "aria-live": "polite" });
/** @type {any} */
let plot = null;
/** @type {any} */
let compared = null;
/** @type {(id: string, words: string) => Node} */
let link = (_, words) => document.createTextNode(words);
let asked = 0;
onColors(() => { if (compared) lay(); });

/** Show these runs; the names of their folders by id come back. @param {string} address @param {string[]} ids @param {(id: string, words: string) => Node} linked @returns {Promise<Object<string, string>>} */
export async function compare(address, ids, linked) {
  const mine = ++asked;
  link = linked;
  if (!ids.length) { compared = null; beside.replaceChildren(); return {}; }
  if (!beside.childElementCount) beside.append(el("p", { class: "hint" }, "Their curves are being read …"));
  const answer = await fetch(`${address}curves?runs=${ids.join(",")}`).catch(() => null);
  if (mine !== asked) return {};
  if (!answer?.ok) { beside.replaceChildren(el("p", {}, answer ? await answer.text() : "Where the page came from is gone.")); return {}; }
  compared = await answer.json();
  lay();
  return Object.fromEntries(Object.entries(compared.figures).map(([id, of]) => [id, of.place]));
}

/** @param {string} id */
function placeOf(id) {
  return compared.figures[id]?.place ?? id;
}

/** The curves among these names, those of a task's own figures behind the usual ones. @param {string[]} names @returns {Column[]} */
function curvesOf(names) {
  const own = [...new Set(names)].filter((name) => !CURVES.some(([known]) => known === name)).sort();
  return [...CURVES.filter(([name]) => names.includes(name)), ...own.map((name) => /** @type {Column} */ ([name, name.replaceAll("_", " "), figure]))];
}

/** The figures that are numbers in some of these runs, those of tasks and models behind the usual ones. @param {string[]} names @returns {Column[]} */
function figuresOf(names) {
  const having = new Set(names.flatMap((id) => Object.entries(compared.figures[id] ?? {}).filter(([, value]) => typeof value === "number").map(([name]) => name)));
  const own = [...having].filter((name) => !FIGURES.some(([known]) => known === name)).map(metric).sort((a, b) => Number(b[0].startsWith("test_")) - Number(a[0].startsWith("test_")) || (a[0] < b[0] ? -1 : 1));
  return [...FIGURES.filter(([name]) => having.has(name)), ...own];
}

function lay() {
  const names = Object.keys(compared.curves), having = curvesOf(names.flatMap((id) => Object.keys(compared.curves[id])));
  const place = el("div", { class: "plot" }), differences = Object.entries(compared.differences), tools = el("div", { class: "tools" });
  const again = (/** @type {Object<string, string|null>} */ what) => { keep(what); head(); over(place, having); };
  const head = () => tools.replaceChildren(choice("curve", having.map(([name, words]) => [name, words]), oneOf("curve", having.map(([name]) => name)), (curve) => again({ curve })),
    choice("by", AXES.map(([name, words]) => [name, words]), oneOf("x", AXES.map(([name]) => name)), (x) => again({ x })),
    choice("axis", [["linear", "linear"], ["log", "logarithmic"]], oneOf("scale", ["linear", "log"]), (scale) => again({ scale })),
    choice("seeds", [["band", "as a mean with a band"], ["each", "each by itself"]], oneOf("seeds", ["band", "each"]), (seeds) => again({ seeds })),
    choice("smoothing", SMOOTHINGS, oneOf("smooth", SMOOTHINGS.map(([value]) => value)), (smooth) => again({ smooth })),
    el("button", { id: "reset", click: () => again({ curve: null, x: null, scale: null, seeds: null, smooth: null }) }, "reset"), ...downloads(() => drawing(having)));
  head();
  beside.replaceChildren(el("h2", {}, names.length === 1 ? "One run" : `${names.length} runs beside each other`), ...(having.length ? [tools, place] : [el("p", {}, "None of them has a curve.")]),
    ...(compared.left_out ? [el("p", { class: "hint" }, `Without ${compared.left_out} more: 60 are compared.`)] : []),
    ...Object.entries(compared.wrong).map(([id, words]) => el("p", {}, `${placeOf(id)}: ${words}`)),
    differences.length ? differ(names, differences) : el("p", { class: "hint" }, names.length > 1 ? "They are made alike: the same scenario, seed, modules, files and packages." : ""), ...(names.length > 1 ? [scatter(names)] : []));
  if (having.length) over(place, having);
}

/** @param {string[]} names @param {[string, any][]} differences */
function differ(names, differences) {
  const made = table(["key", ...names.map(placeOf)], differences.map(([key, of]) => [broken(key), ...names.map((id) => of[id] ?? "")]), "In what they differ", "high pinned");
  made.querySelectorAll("thead th").forEach((cell, i) => { if (i) cell.replaceChildren(link(names[i - 1], placeOf(names[i - 1]))); });
  return made;
}

/** A key that may be broken into lines behind its dots. @param {string} key */
function broken(key) {
  return el("span", {}, ...key.split(/(?<=\.)/).flatMap((part) => [part, el("wbr")]));
}

/** The name of a curve of these runs, by which each of them is found. @param {string[]} ids @param {string} words */
function named(ids, words) {
  if (ids.length === 1) return compared.names[ids[0]] || placeOf(ids[0]);
  const seeds = ids.map((id) => compared.figures[id]?.seed).sort((a, b) => a - b);
  return `${compared.groups[ids[0]]} (${words}: seeds ${seeds.slice(0, 6).join(", ")}${seeds.length > 6 ? ` and ${seeds.length - 6} more` : ""})`;
}

/** @typedef {{name: string, stroke: string, x: number[], mean: (number|null)[], low: (number|null)[], high: (number|null)[], many: number, i: number}} Drawn */

/** The curves of each group: the mean, the lowest and the highest, on the axis that is asked for. @returns {Drawn[]} */
function drawn(/** @type {Column[]} */ having) {
  const name_ = oneOf("curve", having.map(([name]) => name)), x = oneOf("x", AXES.map(([name]) => name)), log = oneOf("scale", ["linear", "log"]) === "log";
  const bands = oneOf("seeds", ["band", "each"]) === "band", window = Number(oneOf("smooth", SMOOTHINGS.map(([value]) => value)));
  /** @type {Map<string, {ids: string[], tables: any[]}>} */
  const groups = new Map();
  for (const [id, curves] of Object.entries(compared.curves)) {
    const curve = curves[name_];
    if (!curve) continue;
    const name = bands ? compared.groups[id] || id : id, pairs = curve[x].map((/** @type {number} */ at, /** @type {number} */ i) => [at, curve.value[i]]);
    const last = new Map(pairs.filter((/** @type {any[]} */ pair) => pair[0] !== null));  // of two figures at one place, the later
    const sorted = [...last].sort((a, b) => a[0] - b[0]);
    const group = groups.get(name) ?? { ids: [], tables: [] };
    group.ids.push(id);
    group.tables.push([sorted.map((pair) => pair[0]), smoothed(sorted.map((pair) => pair[1]), window)]);
    groups.set(name, group);
  }
  return [...groups.values()].map(({ ids, tables: of }, i) => {
    const stroke = i < 6 ? color(`c${i}`) : `hsl(${(i * 61) % 360} 60% 50%)`, joined = of.length > 1 ? uPlot.join(of) : of[0], columns = joined.slice(1);
    const at = joined[0].map((/** @type {any} */ _, /** @type {number} */ k) => columns.map((/** @type {any} */ column) => column[k]).filter((/** @type {any} */ v) => v !== null && v !== undefined && (!log || v > 0)));
    const made = (/** @type {(row: number[]) => number} */ of_) => at.map((/** @type {number[]} */ row) => row.length ? of_(row) : null);
    return { name: named(ids, `mean of ${ids.length}`), stroke, i, many: of.length, x: joined[0], mean: made((row) => row.reduce((a, b) => a + b, 0) / row.length), low: made((row) => Math.min(...row)), high: made((row) => Math.max(...row)) };
  });
}

/** What is drawn, as a picture to take home. @param {Column[]} having @returns {import("./picture.js").Picture} */
function drawing(having) {
  const of = having.find(([name]) => name === oneOf("curve", having.map(([each]) => each))) ?? having[0], axis = AXES.find(([name]) => name === oneOf("x", AXES.map(([each]) => each))) ?? AXES[0];
  const pairs = (/** @type {Drawn} */ each) => /** @type {[number, number][]} */ (each.x.map((x, i) => [x, each.mean[i]]).filter(([, y]) => y !== null));
  return { title: `${of[1]} by ${axis[1]}`, x: axis[1], y: of[1], log: oneOf("scale", ["linear", "log"]) === "log", xWords: axis[2], yWords: of[2],
    series: drawn(having).map((each) => ({ name: each.name, color: each.stroke, dash: each.i >= 6, points: pairs(each), band: each.many > 1 ? /** @type {[number, number, number][]} */ (each.x.map((x, i) => [x, each.low[i], each.high[i]]).filter(([, low]) => low !== null)) : undefined })) };
}

/** Draw the curves: of each group the mean, and a band from its lowest to its highest. @param {HTMLElement} place @param {Column[]} having */
function over(place, having) {
  plot?.destroy();
  plot = null;
  place.replaceChildren();
  const groups = drawn(having), of = having.find(([name]) => name === oneOf("curve", having.map(([each]) => each))) ?? having[0], axis = AXES.find(([name]) => name === oneOf("x", AXES.map(([each]) => each))) ?? AXES[0];
  if (!groups.length) { place.textContent = "None of them has such a curve."; return; }
  if (groups.every((each) => new Set(each.x).size < 2)) { place.textContent = `There is one value of ${axis[1]} only: no curve to draw. Choose another axis.`; return; }
  const value = (/** @type {any} */ _, /** @type {any} */ v) => of[2](v), log = oneOf("scale", ["linear", "log"]) === "log";
  /** @type {any[]} */
  const tables = [], series = [], bands = [];
  for (const each of groups) {
    tables.push([each.x, each.mean]);
    series.push({ label: each.name, stroke: each.stroke, width: 1.8, dash: each.i < 6 ? undefined : [6, 3], spanGaps: true, value, points: { show: each.x.length < 3 } });
    if (each.many > 1) {
      tables.push([each.x, each.high], [each.x, each.low]);
      series.push({ label: "highest", stroke: each.stroke, width: 0.4, spanGaps: true, value }, { label: "lowest", stroke: each.stroke, width: 0.4, spanGaps: true, value });
      bands.push({ series: [series.length - 1, series.length], fill: each.stroke.startsWith("#") ? `${each.stroke}30` : each.stroke.replace(")", " / 18%)") });
    }
  }
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", `${of[1]} by ${axis[1]} of ${groups.length} groups of runs; the last values are in the table above`);
  const ink = color("soft"), grid = { stroke: color("line"), width: 1 };
  const atLast = (/** @type {any} */ made) => made.setLegend({ idx: made.data[0].length - 1 });
  plot = new uPlot({ hooks: { ready: [atLast, (/** @type {any} */ made) => made.over.addEventListener("mouseleave", () => atLast(made))] }, width: place.clientWidth || 600, height: 320, scales: { x: { time: false }, y: log ? LOG_SCALE : {} }, bands,
    axes: [{ stroke: ink, grid, ticks: grid, space: 70, values: (/** @type {any} */ _, /** @type {number[]} */ splits) => apart(splits, axis[2]), incrs: axis[0] === "round" ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1e4, 1e5] : undefined }, { stroke: ink, grid, ticks: grid, size: 70, ...(log ? LOG_AXIS : {}), values: (/** @type {any} */ _, /** @type {number[]} */ splits) => apart(splits, of[2]) }],
    series: [{ label: axis[1], value: (/** @type {any} */ _, /** @type {any} */ v) => v === null ? "–" : axis[2](v) }, ...series] }, uPlot.join(tables), place);
}
new ResizeObserver(() => { const width = plot?.root.parentElement?.clientWidth; if (width && Math.abs(width - plot.width) > 2) plot.setSize({ width, height: 320 }); }).observe(beside);

/** Any key or figure against any figure, a point for each run. @param {string[]} names */
function scatter(names) {
  const ys = figuresOf(names);
  if (!ys.length) return el("p");
  const differ = Object.keys(compared.differences).filter((key) => key !== "name"), isFigure = (/** @type {string} */ key) => ys.some(([name]) => name === key);
  const keys = differ.filter((key) => !isFigure(key)), varied = [...keys.map((key) => /** @type {[string, string]} */ ([key, key])), ...ys.filter(([name]) => differ.includes(name))];
  // What the runs differ in comes first; where that is nothing, any figure but the one that is drawn.
  const others = ys.filter(([name]) => !differ.includes(name)), xs = /** @type {[string, string][]} */ ([...varied, ...(varied.length ? others : [...others.slice(1), ...others.slice(0, 1)])].map(([name, words]) => [name, words]));
  const place = el("div", { id: "scatter", tabindex: 0, role: "region", "aria-label": "a point for each run" }), tools = el("div", { class: "tools" });
  const again = (/** @type {Object<string, string|null>} */ what) => { keep(what); draw(); };
  const made = () => points(names, oneOf("against", xs.map(([name]) => name)), ys.find(([name]) => name === oneOf("figure", ys.map(([each]) => each))) ?? ys[0]);
  const draw = () => {
    tools.replaceChildren(choice("figure", ys.map(([name, words]) => [name, words]), oneOf("figure", ys.map(([name]) => name)), (name) => again({ figure: name })), choice("against", xs, oneOf("against", xs.map(([name]) => name)), (name) => again({ against: name })),
      el("button", { click: () => again({ figure: null, against: null }) }, "reset"), ...downloads(made));
    place.replaceChildren(picture({ ...made(), width: Math.max(320, Math.min(900, beside.clientWidth || 760)), height: 320 }));
  };
  draw();
  return el("section", {}, el("h3", {}, "One figure against another, or against a key"), el("p", { class: "hint" }, "A point for each run; runs that differ in the seed alone have one color, runs of one seed do not. A click opens a run."), tools, place);
}

/** @param {string[]} names @param {string} against @param {Column} of @returns {import("./picture.js").Picture} */
function points(names, against, of) {
  const as = figuresOf(names).find(([name]) => name === against);
  const number = (/** @type {string} */ id) => as ? compared.figures[id]?.[against] : compared.numbers[against]?.[id];
  const text = (/** @type {string} */ id) => compared.differences[against]?.[id] ?? String(compared.figures[id]?.[against] ?? "–");
  const numeric = names.every((id) => typeof number(id) === "number"), levels = numeric ? [] : [...new Set(names.map(text))].sort();
  /** @type {Map<string, import("./picture.js").Series>} */
  const groups = new Map();
  for (const id of names) {
    const y = compared.figures[id]?.[of[0]], group = compared.groups[id] || id;
    if (typeof y !== "number") continue;
    const series = groups.get(group) ?? { name: group, color: groups.size < 6 ? color(`c${groups.size}`) : `hsl(${(groups.size * 61) % 360} 60% 50%)`, line: false, points: [], ids: [], titles: [] };
    series.points.push([numeric ? Number(number(id)) : levels.indexOf(text(id)), y]);
    series.ids?.push(id);
    series.titles?.push(`${placeOf(id)}: ${against} ${text(id)}, ${of[1]} ${of[2](y)}`);
    groups.set(group, series);
  }
  const words = as ? as[2] : figure;
  for (const series of groups.values()) series.name = named(series.ids ?? [], `${series.points.length} runs`);
  return { title: `${of[1]} against ${as ? as[1] : against}`, x: as ? as[1] : against, y: of[1], series: [...groups.values()], xWords: words, yWords: of[2], xTicks: numeric ? undefined : levels.map((level, i) => [i, level]),
    open: (id) => { const to = link(id, ""); if (to instanceof HTMLElement) to.click(); } };
}
