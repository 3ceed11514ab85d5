// The page of many runs: a table, curves over each other, differences of scenarios, tables of sweeps.
import { bytes, choice, color, count, el, figure, percent, seconds, table } from "./dom.js";

const app = /** @type {HTMLElement} */ (document.getElementById("app")), address = app.dataset.live ?? "";
/** @typedef {[string, string, (v: any) => string]} Column */
const COLUMNS = /** @type {Column[]} */ ([["name", "scenario", String], ["place", "where", String], ["verdict", "verdict", String], ["world", "world", String], ["algorithm", "algorithm", String], ["nodes", "nodes", count], ["rounds", "rounds", count], ["seed", "seed", String], ["accuracy", "accuracy", percent], ["loss", "test loss", figure], ["nbytes", "sent", bytes], ["duration_s", "took", seconds], ["tags", "tags", (tags) => tags.join(", ")]]);
const CURVES = /** @type {Column[]} */ ([["test_accuracy", "test accuracy", percent], ["mean_local_accuracy", "accuracy, mean of local models", percent], ["test_loss", "test loss", figure], ["error", "error", figure], ["consensus_distance", "consensus distance", figure], ["weight_sum", "push-sum weight", figure]]);
const MOST_ROWS = 500;
const shown = { sort: "place", down: true, text: "", curve: "test_accuracy", x: "round", log: false, bands: true };
/** @type {any} */
let known = { runs: [], tables: [] };
/** @type {Set<string>} */
const chosen = new Set();
/** @type {any} */
let plot = null;
/** @type {any} */
let compared = null;

const list = el("div", { id: "list" }), beside = el("section", { id: "beside", "aria-live": "polite" }), studies = el("section", { id: "studies" });
const search = /** @type {HTMLInputElement} */ (el("input", { type: "search", id: "filter", placeholder: "fedavg pass", input: () => { shown.text = search.value; draw(); } }));
const said = el("p", { class: "hint", role: "status" });
document.title = "Runs";
const heading = document.querySelector("h1");
if (heading) heading.textContent = "Runs";
for (const id of ["verdict", "sections", "numbers", "footer"]) document.getElementById(id)?.remove();
app.append(el("div", { class: "tools" }, el("label", {}, "only those with all of", search), el("button", { click: load }, "look again"),
  el("button", { click: () => { for (const run of rows()) chosen.add(run.id); draw(); compare(); } }, "compare all below"),
  el("button", { click: () => { chosen.clear(); draw(); compare(); } }, "compare none")), said, list, beside, studies);
load();

async function load() {
  const answer = await fetch(`${address}runs`);
  if (!answer.ok) { said.textContent = await answer.text(); return; }
  known = await answer.json();
  said.textContent = known.runs.length ? "Tick runs to see their curves, and what differs between their scenarios." : "There are no runs here yet: `netdfl run SCENARIO` makes one.";
  draw();
  studies.replaceChildren(...(known.tables.length ? [el("h2", {}, "Tables of sweeps and reproductions"), ...known.tables.map(study)] : []));
}

/** The runs that are asked for, in order. @returns {any[]} */
function rows() {
  const words = shown.text.toLowerCase().split(/\s+/).filter(Boolean);
  const of = known.runs.filter((/** @type {any} */ run) => {
    const text = COLUMNS.map(([name]) => String(run[name] ?? "")).join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const value = (/** @type {any} */ run) => run[shown.sort] ?? "";
  return of.sort((/** @type {any} */ a, /** @type {any} */ b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) * (shown.down ? -1 : 1));
}

function draw() {
  const of = rows(), used = COLUMNS.filter(([name]) => of.some((run) => run[name] !== undefined && run[name] !== null && String(run[name]) !== ""));
  const head = el("tr", {}, el("th", { scope: "col" }, "compare"), ...used.map(([name, words]) => el("th", { scope: "col", "aria-sort": shown.sort !== name ? "none" : shown.down ? "descending" : "ascending" },
    el("button", { click: () => sortBy(name) }, `${words}${shown.sort !== name ? "" : shown.down ? " ▾" : " ▴"}`))));
  const body = of.slice(0, MOST_ROWS).map((run) => el("tr", {}, el("td", {}, tick(run)), ...used.map(([name, , words]) => el("td", {}, cell(run, name, words)))));
  const caption = `${count(of.length)} of ${count(known.runs.length)} runs${of.length > MOST_ROWS ? `, the first ${MOST_ROWS}` : ""}`;
  list.replaceChildren(el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "runs" }, el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, ...body))));
}

/** @param {string} name */
function sortBy(name) {
  shown.down = shown.sort === name ? !shown.down : false;
  shown.sort = name;
  draw();
  list.querySelector(`th[aria-sort=${shown.down ? "descending" : "ascending"}] button`)?.focus();
}

/** @param {any} run @param {string} name @param {(v: any) => string} words @returns {string|Node} */
function cell(run, name, words) {
  if (name === "place") return link(run.id, run.place);
  if (name === "verdict" && run.wrong) return `${run.verdict}: ${run.wrong}`;
  return run[name] === undefined || run[name] === null ? "–" : words(run[name]);
}

/** @param {any} run */
function tick(run) {
  return el("input", { type: "checkbox", "aria-label": `compare ${run.place}`, checked: chosen.has(run.id), change: () => { if (!chosen.delete(run.id)) chosen.add(run.id); compare(); } });
}

/** @param {string} id @param {string} words */
function link(id, words) {
  return el("a", { href: `${address}run/${id}/` }, words);
}

/** @param {string} id */
function placeOf(id) {
  return known.runs.find((/** @type {any} */ run) => run.id === id)?.place ?? id;
}

async function compare() {
  if (!chosen.size) { beside.replaceChildren(); return; }
  const answer = await fetch(`${address}curves?runs=${[...chosen].join(",")}`);
  if (!answer.ok) { said.textContent = await answer.text(); return; }
  compared = await answer.json();
  lay();
}

/** The curves among these names, those of a task's own figures behind the usual ones. @param {string[]} names @returns {Column[]} */
function curvesOf(names) {
  const own = [...new Set(names)].filter((name) => !CURVES.some(([known]) => known === name)).sort();
  return [...CURVES.filter(([name]) => names.includes(name)), ...own.map((name) => /** @type {Column} */ ([name, name.replaceAll("_", " "), figure]))];
}

function lay() {
  const names = Object.keys(compared.curves), having = curvesOf(names.flatMap((id) => Object.keys(compared.curves[id])));
  if (!having.some(([name]) => name === shown.curve) && having.length) shown.curve = having[0][0];
  const place = el("div", { class: "plot" }), differences = Object.entries(compared.differences);
  const again = (/** @type {Partial<typeof shown>} */ what) => { Object.assign(shown, what); over(place); };
  beside.replaceChildren(el("h2", {}, `${names.length} runs beside each other`),
    el("div", { class: "tools" }, choice("curve", having.map(([name, words]) => [name, words]), shown.curve, (curve) => again({ curve })),
      choice("by", [["round", "round"], ["at_s", "time"]], shown.x, (x) => again({ x })),
      choice("axis", [["", "linear"], ["log", "logarithmic"]], shown.log ? "log" : "", (log) => again({ log: Boolean(log) })),
      choice("seeds", [["band", "as a mean with a band"], ["", "each by itself"]], shown.bands ? "band" : "", (bands) => again({ bands: Boolean(bands) }))),
    place, ...Object.entries(compared.wrong).map(([id, words]) => el("p", {}, `${placeOf(id)}: ${words}`)),
    differences.length ? table(["key", ...names.map(placeOf)], differences.map(([key, of]) => [key, ...names.map((id) => of[id] ?? "")]), "In what their scenarios differ", "high")
      : el("p", { class: "hint" }, names.length > 1 ? "Their scenarios are the same." : ""));
  over(place);
}

/** Draw the curves: of each group the mean, and a band from its lowest to its highest. @param {HTMLElement} place */
function over(place) {
  plot?.destroy();
  place.replaceChildren();
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const [id, curves] of Object.entries(compared.curves)) {
    const curve = curves[shown.curve];
    if (!curve) continue;
    const name = shown.bands ? compared.groups[id] || placeOf(id) : placeOf(id);
    groups.set(name, [...(groups.get(name) ?? []), [curve[shown.x], curve.value]]);
  }
  if (!groups.size) { place.textContent = "None of them has such a curve."; return; }
  const words = curvesOf([shown.curve]).find(([name]) => name === shown.curve)?.[2] ?? figure, value = (/** @type {any} */ _, /** @type {any} */ v) => words(v);
  /** @type {any[]} */
  const tables = [], series = [], bands = [];
  [...groups].forEach(([name, of], i) => {
    const stroke = i < 6 ? color(`c${i}`) : `hsl(${(i * 61) % 360} 60% 50%)`;
    const joined = of.length > 1 ? uPlot.join(of) : of[0], columns = joined.slice(1);
    const at = joined[0].map((/** @type {any} */ _, /** @type {number} */ k) => columns.map((/** @type {any} */ column) => column[k]).filter((/** @type {any} */ v) => v !== null && v !== undefined && (!shown.log || v > 0)));
    const made = (/** @type {(row: number[]) => number} */ of_) => [joined[0], at.map((/** @type {number[]} */ row) => row.length ? of_(row) : null)];
    tables.push(made((row) => row.reduce((a, b) => a + b, 0) / row.length));
    series.push({ label: of.length > 1 ? `${name} (mean of ${of.length})` : name, stroke, width: 1.8, dash: i < 6 ? undefined : [6, 3], spanGaps: true, value, points: { show: joined[0].length < 3 } });
    if (of.length > 1) {
      tables.push(made((row) => Math.max(...row)), made((row) => Math.min(...row)));
      series.push({ label: "highest", stroke, width: 0.4, spanGaps: true, value }, { label: "lowest", stroke, width: 0.4, spanGaps: true, value });
      bands.push({ series: [series.length - 1, series.length], fill: stroke.startsWith("#") ? `${stroke}30` : stroke.replace(")", " / 18%)") });
    }
  });
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", `${shown.curve.replaceAll("_", " ")} of ${groups.size} groups of runs; the last values are in the table above`);
  const ink = color("soft"), grid = { stroke: color("line"), width: 1 };
  const atLast = (/** @type {any} */ drawn) => drawn.setLegend({ idx: drawn.data[0].length - 1 });
  plot = new uPlot({ hooks: { ready: [atLast, (/** @type {any} */ drawn) => drawn.over.addEventListener("mouseleave", () => atLast(drawn))] }, width: place.clientWidth || 600, height: 320, scales: { x: { time: false }, y: shown.log ? { distr: 3 } : {} }, bands,
    axes: [{ stroke: ink, grid, ticks: grid, incrs: shown.x === "round" ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1e4, 1e5] : undefined }, { stroke: ink, grid, ticks: grid, size: 70, values: (/** @type {any} */ _, /** @type {number[]} */ splits) => splits.map((v) => v === null ? null : words(v)) }],
    series: [{ label: shown.x === "round" ? "round" : "time", value: (/** @type {any} */ _, /** @type {any} */ v) => v === null ? "–" : shown.x === "round" ? String(v) : seconds(v) }, ...series] }, uPlot.join(tables), place);
}

/** The table of a sweep or a reproduction; a row opens its runs. @param {any} of */
function study(of) {
  const open = (/** @type {string[]} */ ids) => { chosen.clear(); for (const id of ids) chosen.add(id); draw(); compare(); beside.scrollIntoView(); };
  const body = of.rows.map((/** @type {string[]} */ row, /** @type {number} */ i) => {
    const ids = of.runs[i], cells = row.map((text) => text.length > 10 && Number.isFinite(Number(text)) ? figure(Number(text)) : text);
    return [...cells, ids.length === 1 ? link(ids[0], "open") : ids.length ? el("button", { click: () => open(ids) }, `its ${ids.length} runs`) : ""];
  });
  return el("details", {}, el("summary", {}, `${of.name}: ${count(of.rows.length)} rows`), table([...of.head, "runs"], body, `${of.name}${of.left_out ? `, without ${count(of.left_out)} more rows` : ""}`, "high"));
}
