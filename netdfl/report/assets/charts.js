// Curves: accuracy, loss, consensus, weight, lengths of rounds; by round, by time, by bytes.
import { apart, bytes, choice, color, el, figure, onColors, percent, seconds } from "./dom.js";
import { choose, end, fleetRound, goTo, now, on, placeBefore, placeOf, rounded, rounds, rowOf, view } from "./model.js";
import { downloads, LOG_AXIS, LOG_SCALE, smoothed, SMOOTHINGS } from "./picture.js";
import { keep, oneOf, state } from "./state.js";

/** @typedef {{name: string, x: (number|null)[], y: (number|null)[], color: string, dash?: number[], low?: boolean, high?: boolean, nodes?: (number|null)[]}} Curve */

const options = { x: "round", smooth: 1 };
/** What begins the name, in the address, of a chart's scale; the chart's title ends it. */
const SCALE = "scale.";
/** @type {any[]} */
let plots = [];

/** Make the section of curves. @returns {HTMLElement} */
export function charts() {
  const box = el("div", { class: "charts" });
  const tools = el("div", { class: "tools" });
  const section = el("section", { id: "learning" }, el("h2", {}, "How it learned"),
    el("p", { class: "hint" }, "Drag over a chart to look closer, double-click to see all again. A click goes to that moment. A node chosen anywhere has its own curve here; the buttons below a chart choose the worst and the best node of the moment."),
    tools, box);
  const draw = () => {
    const { frame } = view.data;
    const axes = /** @type {[string, string][]} */ ([["round", "round"], ...(frame.by_round ? [] : [["time", "time"]]), ["bytes", "bytes sent"]]);
    options.x = oneOf("x", axes.map(([name]) => name));
    options.smooth = Number(oneOf("smooth", SMOOTHINGS.map(([value]) => value)));
    const set = (/** @type {Object<string, string|null>} */ what) => { keep(what); draw(); };
    const linear = () => Object.fromEntries([...state().keys()].filter((name) => name.startsWith(SCALE)).map((name) => [name, null]));
    tools.replaceChildren(choice("by", axes, options.x, (x) => set({ x: x === "round" ? null : x })), choice("smoothing", SMOOTHINGS, String(options.smooth), (value) => set({ smooth: value === "1" ? null : value })), el("button", { id: "reset", click: () => set({ x: null, smooth: null, ...linear() }) }, "reset"));
    for (const plot of plots) plot.destroy();
    plots = [];
    const drawn = figures();
    box.classList.toggle("four", drawn.length === 4);
    box.replaceChildren(...drawn.map(chart));
    section.hidden = !box.children.length;
    mark();
  };
  on(["data", "chosen"], draw);
  on(["at"], mark);
  onColors(draw);
  window.addEventListener("hashchange", () => { if (view.data) draw(); });
  new ResizeObserver(() => plots.forEach(resize)).observe(box);
  return section;
}

/** @param {any} plot */
function resize(plot) {
  const width = plot.root.parentElement?.clientWidth;
  if (width && Math.abs(width - plot.width) > 2) plot.setSize({ width, height: 230 });
}

function mark() {
  for (const plot of plots) { plot.redraw(false); plot.told?.(); }
}

/** Where the handle stands on the axis in use. */
function xNow() {
  if (options.x === "time") return now();
  if (options.x === "bytes") return view.data.counts.nbytes[placeBefore(now())];
  return view.data.frame.by_round ? now() - 1 : fleetRound();
}

/** @param {any} table with round, at_s, nbytes */
function xOf(table) {
  if (options.x === "round") return table.round;
  if (options.x === "time") return table.at_s;
  return table.nbytes ?? table.at_s.map((/** @type {number} */ at, /** @type {number} */ i) => {
    const until = view.data.frame.by_round ? table.round[i] + 1 : at;
    return view.data.counts.nbytes[placeOf(until)];
  });
}

/** @typedef {{title: string, curves: Curve[], log: boolean, of: (value: number|null) => string, spread?: any, words: string}} Chart */

/** @returns {Chart[]} The charts that there is something for. */
function figures() {
  const { curves, spreads, round_times, frame } = view.data;
  /** @type {Chart[]} */
  const found = [];
  /** @param {string} name @param {string} words @param {number} place @returns {Curve[]} */
  const fleet = (name, words, place) => curves[name] ? [{ name: words, x: xOf(curves[name]), y: curves[name].value, color: `c${place}` }] : [];
  /** @param {string} name @param {string} words @returns {Curve[]} */
  const spread = (name, words) => {
    const of = spreads[name];
    if (!of || (name === "train_loss" && !of.high.some(Boolean))) return [];
    const x = xOf(of);
    return [{ name: `${words}, lowest`, x, y: of.low, color: "soft", low: true, nodes: of.low_node }, { name: `${words}, highest`, x, y: of.high, color: "soft", high: true, nodes: of.high_node },
      { name: `${words}, mean`, x, y: of.mean, color: "c2" }, ...chosen(name)];
  };
  /** The mean of local models, where it does not come with their band. @param {string} name @param {string} of */
  const mean = (name, of) => spreads[name] ? [] : fleet(of, "mean of local models", 1);
  /** @param {string} title @param {Curve[]} drawn @param {(value: number|null) => string} of @param {boolean} log @param {string} words @param {any} [table] */
  const add = (title, drawn, of, log, words, table) => { if (drawn.length) found.push({ title, curves: drawn, of, log, words, spread: table }); };
  add("Test accuracy", [...fleet("test_accuracy", "average model", 0), ...mean("test_accuracy", "mean_local_accuracy"), ...fleet("mean_personal_accuracy", "local models, own labels", 3), ...spread("test_accuracy", "local models")],
    percent, false, "On the whole test set: of the average model, and of the local ones.", spreads.test_accuracy);
  add("Loss", [...fleet("test_loss", "test, average model", 0), ...spread("train_loss", "train, local models")], figure, false, "The band spans all nodes.", spreads.train_loss);
  for (const stem of ownStems(curves)) {
    const name = `test_${stem}`, drawn = [...fleet(name, "average model", 0), ...mean(name, `mean_local_${stem}`), ...fleet(`mean_personal_${stem}`, "local models, own test set", 3), ...spread(name, "local models")];
    add(`Test ${stem.replaceAll("_", " ")}`, drawn, figure, false, "A figure that the task has of its own: of the average model, and of the local ones.", spreads[name]);
  }
  add("Error", fleet("error", "average model", 0), figure, positive(curves.error?.value), "From the average model to the answer, per coordinate.");
  add("Consensus distance", fleet("consensus_distance", "consensus distance", 0), figure, positive(curves.consensus_distance?.value), "How far the nodes' models are from their mean.");
  add("Push-sum weight", [...fleet("weight_sum", "sum of w over n", 0), ...(curves.weight_sum ? spread("weight", "w of nodes") : [])], figure, false, "The mass that live nodes hold; less than 1 is lost, or on its way.", spreads.weight);
  if (!frame.by_round) {
    const known = round_times ? [["median_s", "the median node"], ["longest_s", "the slowest node"], ["deadline_s", "deadline in force"]].map(([key, name], i) => ({
      name, color: `c${i}`, y: round_times[key], x: xOf({ round: round_times[key].map((/** @type {any} */ _, /** @type {number} */ round) => round), at_s: spreads.round_s?.at_s ?? [] }) })).filter((curve) => curve.y.some((/** @type {any} */ value) => value) && curve.x.length) : spread("round_s", "rounds");
    add("Length of a round", options.x === "round" || !round_times ? /** @type {Curve[]} */ (known) : spread("round_s", "rounds"), (value) => seconds(value), steep(/** @type {Curve[]} */ (known)), "How long rounds took, and the deadline then.", spreads.round_s);
  }
  return found;
}

/** What of a model the task's own figures are of: `mae` of `test_mae`. @param {Object<string, any>} curves @returns {string[]} */
function ownStems(curves) {
  return Object.keys(curves).filter((name) => name.startsWith("test_") && !["test_accuracy", "test_loss"].includes(name)).map((name) => name.slice(5));
}

/** The curve of the chosen node. @param {string} name @returns {Curve[]} */
function chosen(name) {
  const matrix = view.data.by_node[name], row = view.node === null ? undefined : rowOf(view.node), kept = rounds();
  if (!matrix || row === undefined) return [];
  const cut = (/** @type {any[]} */ of) => of.slice(row * kept.length, (row + 1) * kept.length);
  const table = { round: kept, at_s: view.data.by_node.ends ? cut(view.data.by_node.ends) : kept };
  return [{ name: `node ${view.node}`, x: xOf(table), y: cut(matrix), color: "fail", dash: [6, 3] }];
}

/** @param {number[]|undefined} values */
function positive(values) {
  return !!values?.length && Math.min(...values) > 0;
}

/** @param {Curve[]} curves */
function steep(curves) {
  const values = curves.flatMap((curve) => curve.y).filter((value) => value !== null && value > 0).map(Number);
  return values.length > 0 && Math.max(...values) > 20 * Math.min(...values);
}

/** @param {Chart} what */
function chart(what) {
  const plot = el("div", { class: "plot" }), tools = el("div", { class: "tools" });
  const figure_ = el("figure", { class: "chart" }, el("h3", {}, what.title), el("p", { class: "hint" }, what.words), plot, tools);
  /** @type {any} */
  let drawn = null;
  const can = what.curves.every((curve) => curve.y.every((value) => value === null || value > 0)), scale = `${SCALE}${what.title.toLowerCase().replaceAll(" ", "-")}`;
  const draw = () => {
    const usual = what.log ? ["log", "linear"] : ["linear", "log"], chosen_ = can ? oneOf(scale, usual) : usual[0], log = chosen_ === "log";
    if (drawn) { plots = plots.filter((each) => each !== drawn); drawn.destroy(); }
    drawn = plotted(plot, what, log);
    plots.push(drawn);
    const worst = what.spread ? [["lowest", "low_node", "low"], ["highest", "high_node", "high"]].map(([words, who, value]) => {
      const button = el("button", { click: () => choose(Number(button.dataset.node)) });
      return { button, words, who, value };
    }) : [];
    drawn.told = () => {
      drawn.setLegend({ idx: lastAtOrBefore(drawn.data[0], xNow()) });
      const place = lastAtOrBefore(what.spread?.round ?? [], view.data.frame.by_round ? now() - 1 : fleetRound());
      for (const each of worst) {
        const node = what.spread[each.who][place];
        each.button.dataset.node = String(node);
        each.button.textContent = `${each.words}: node ${node}, ${what.of(what.spread[each.value][place])}`;
      }
    };
    tools.replaceChildren(...(can ? [choice("axis", [["linear", "linear"], ["log", "logarithmic"]], chosen_, (value) => { keep({ [scale]: value === usual[0] ? null : value }); draw(); })] : []), ...worst.map((each) => each.button), ...downloads(() => drawing(what, log)));
    drawn.told();
  };
  queueMicrotask(() => { if (plot.isConnected) draw(); });
  return figure_;
}

/** A chart as a picture to take home. @param {Chart} what @param {boolean} log @returns {import("./picture.js").Picture} */
function drawing(what, log) {
  const axis = { round: "round", time: "time", bytes: "bytes sent" }[options.x] ?? options.x, x = { time: (/** @type {number} */ v) => seconds(v), bytes }[options.x] ?? String;
  return { title: `${what.title} by ${axis}`, x: axis, y: what.title, log, xWords: x, yWords: what.of, series: what.curves.map((curve) => {
    const smooth = smoothed(curve.y, options.smooth);
    return { name: curve.name, color: color(curve.color), dash: Boolean(curve.dash), points: /** @type {[number, number][]} */ (curve.x.map((at, i) => [at, smooth[i]]).filter(([at, y]) => at !== null && at !== undefined && y !== null && y !== undefined)) };
  }) };
}

/** @param {number[]} sorted @param {number} value */
function lastAtOrBefore(sorted, value) {
  let found = 0;
  while (found + 1 < sorted.length && sorted[found + 1] <= value) found++;
  return found;
}

/** @param {HTMLElement} parent @param {Chart} what @param {boolean} log */
function plotted(parent, what, log) {
  parent.replaceChildren();
  const tables = what.curves.map((curve) => {
    const smooth = smoothed(curve.y, options.smooth), pairs = curve.x.map((x, i) => [x, smooth[i]]).filter(([x, y]) => x !== null && x !== undefined && y !== null && (!log || Number(y) > 0)).sort((a, b) => Number(a[0]) - Number(b[0]));
    return [pairs.map((pair) => pair[0]), pairs.map((pair) => pair[1])];
  });
  const data = uPlot.join(tables);
  const low = what.curves.findIndex((curve) => curve.low) + 1, high = what.curves.findIndex((curve) => curve.high) + 1;
  const ink = color("soft"), grid = { stroke: color("line"), width: 1 };
  const x = { round: (/** @type {number} */ v) => String(v), time: (/** @type {number} */ v) => seconds(v), bytes }[options.x] ?? String;
  const values = (/** @type {(v: number, digits?: number) => string} */ words) => (/** @type {any} */ _, /** @type {number[]} */ splits) => apart(splits, words);
  const label = `${what.title} by ${options.x}. The same figures are in the tables below.`;
  parent.setAttribute("role", "img");
  parent.setAttribute("aria-label", label);
  return new uPlot({
    width: parent.clientWidth || 400, height: 230,
    scales: { x: { time: false }, y: log ? LOG_SCALE : { range: yRange } },
    cursor: { drag: { x: true, y: false } },
    axes: [{ stroke: ink, grid, ticks: grid, values: values(x), space: 60, incrs: options.x === "round" ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 1e4, 1e5] : undefined }, { stroke: ink, grid, ticks: grid, size: wide, values: values(what.of), ...(log ? LOG_AXIS : {}) }],
    series: [{ label: options.x, value: (/** @type {any} */ _, /** @type {number|null} */ v) => v === null ? "–" : x(v) },
      ...what.curves.map((curve) => ({ label: curve.name, stroke: color(curve.color), width: curve.low || curve.high ? 0.8 : 1.8, dash: curve.dash, spanGaps: true, points: { show: curve.x.length < 3 },
        value: (/** @type {any} */ _, /** @type {number|null} */ v) => what.of(v) }))],
    bands: low && high ? [{ series: [high, low], fill: `${color("soft")}26` }] : [],
    hooks: {
      draw: [(/** @type {any} */ plot) => line(plot)],
      ready: [(/** @type {any} */ plot) => plot.told?.(), (/** @type {any} */ plot) => plot.over.addEventListener("mouseleave", () => plot.told?.()), (/** @type {any} */ plot) => plot.over.addEventListener("click", () => { if (plot.cursor.left >= 0) goTo(timeOfX(plot.posToVal(plot.cursor.left, "x"))); })],
    },
  }, data, parent);
}

/** A curve that is flat stands in the middle, whatever its height. @param {any} _ @param {number|null} low @param {number|null} high */
function yRange(_, low, high) {
  if (low === null || high === null) return [0, 1];
  const around = Math.abs(low) || 1;
  return high - low > 1e-9 * around ? uPlot.rangeNum(low, high, 0.1, true) : [low >= 0 ? 0 : low - around, low + around];
}

/** As wide as the longest number beside an axis. @param {any} _ @param {(string|null)[]|null} texts */
function wide(_, texts) {
  return 22 + 6.8 * Math.max(4, ...(texts ?? []).map((text) => text?.length ?? 0));
}

/** The moment that belongs to a place on the axis. @param {number} x */
function timeOfX(x) {
  const { frame, counts, spreads } = view.data;
  if (options.x === "time") return rounded(x, end());
  if (options.x === "bytes") return frame.moments[Math.max(0, counts.nbytes.findIndex((/** @type {number} */ sent) => sent >= x))];
  if (frame.by_round) return Math.round(x) + 1;
  const of = spreads.round_s ?? spreads.train_loss;
  return of ? frame.moments[placeOf(of.at_s[lastAtOrBefore(of.round, Math.round(x))])] : now();
}

/** The handle, as a line over a chart. @param {any} plot */
function line(plot) {
  const x = plot.valToPos(xNow(), "x", true), { left, top, width, height } = plot.bbox;
  if (!(x >= left && x <= left + width)) return;
  const context = plot.ctx;
  context.save();
  context.strokeStyle = color("ink");
  context.setLineDash([4, 4]);
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x, top + height);
  context.stroke();
  context.restore();
}
