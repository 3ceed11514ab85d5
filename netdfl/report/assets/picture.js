// A chart as a picture of vectors: for the scatter, and for what is taken home as SVG, PNG or a table.
import { apart, color, el } from "./dom.js";

/** @typedef {{name: string, color: string, points: [number, number][], line?: boolean, dash?: boolean, band?: [number, number, number][], ids?: string[], titles?: string[]}} Series */
/** @typedef {{title: string, x: string, y: string, series: Series[], log?: boolean, xWords: (v: number, digits?: number) => string, yWords: (v: number, digits?: number) => string, xTicks?: [number, string][], width?: number, height?: number, open?: (id: string) => void}} Picture */

const SVG = "http://www.w3.org/2000/svg", LINE = 17;

/** @param {string} tag @param {Object<string, any>} attributes @param {...(Node|string)} children @returns {SVGElement} */
function s(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/** Round numbers from low to high. @param {number} low @param {number} high @param {number} most @returns {number[]} */
export function ticks(low, high, most) {
  if (!(high > low)) return [low];
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? rough;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** @param {number[]} values @param {boolean} log @returns {[number, number]} A range with some room. */
function range(values, log) {
  const finite = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  if (!finite.length) return log ? [0.1, 1] : [0, 1];
  const low = Math.min(...finite), high = Math.max(...finite);
  if (log) return [low / 1.15, high * 1.15];
  const room = high > low ? 0.05 * (high - low) : Math.abs(low) || 1;
  return [low - room, high + room];
}

/** Draw. @param {Picture} of @returns {SVGElement} */
export function picture(of) {
  const width = of.width ?? 760, height = of.height ?? 380, log = of.log ?? false;
  const xs = of.series.flatMap((each) => each.points.map((point) => point[0])), ys = of.series.flatMap((each) => [...each.points.map((point) => point[1]), ...(each.band ?? []).flatMap((row) => [row[1], row[2]])]);
  const [x0, x1] = range(of.xTicks ? [-0.5, of.xTicks.length - 0.5] : xs, false), [y0, y1] = range(ys, log);
  const named = of.series.filter((each) => each.name), wide = Math.min(width - 20, 34 + 7 * Math.max(8, ...named.map((each) => each.name.length))), perLine = Math.max(1, Math.floor((width - 20) / wide)), rows = Math.ceil(named.length / perLine), letters = Math.floor((wide - 34) / 7);
  const yTicks = log ? logTicks(y0, y1) : ticks(y0, y1, 6), yNames = apart(yTicks, of.yWords).map(String), left = 16 + 7 * Math.max(...yNames.map((words) => words.length), 3), top = 46, bottom = height - 44;
  const x = (/** @type {number} */ v) => left + (width - left - 16) * (v - x0) / (x1 - x0), fy = log ? Math.log10 : (/** @type {number} */ v) => v;
  const y = (/** @type {number} */ v) => bottom - (bottom - top) * (fy(v) - fy(y0)) / (fy(y1) - fy(y0));
  const ink = color("ink"), soft = color("soft"), grid = color("line"), whole = height + rows * LINE + 6;
  const root = s("svg", { xmlns: SVG, viewBox: `0 0 ${width} ${whole}`, width, height: whole, role: "img", "aria-label": of.title, "font-family": "system-ui, sans-serif", "font-size": 12 },
    s("rect", { width, height: whole, fill: color("paper") }), s("text", { x: 10, y: 20, fill: ink, "font-size": 14, "font-weight": 600 }, of.title), s("text", { x: 10, y: 37, fill: soft }, of.y));
  const room = Math.max(2, Math.floor((width - left) / 90));
  const xTicks = ticks(x0, x1, room), xNames = apart(xTicks, of.xWords).map(String);
  const named_x = of.xTicks ? of.xTicks.filter((_, i, all) => i % Math.ceil(all.length / room) === 0) : xTicks.map((value, i) => /** @type {[number, string]} */ ([value, xNames[i]]));
  for (const [value, words] of named_x) root.append(s("line", { x1: x(value), x2: x(value), y1: top, y2: bottom, stroke: grid }), s("text", { x: x(value), y: bottom + 16, fill: soft, "text-anchor": "middle" }, words.slice(0, 18)));
  for (const [i, value] of yTicks.entries()) root.append(s("line", { x1: left, x2: width - 16, y1: y(value), y2: y(value), stroke: grid }), s("text", { x: left - 6, y: y(value) + 4, fill: soft, "text-anchor": "end" }, yNames[i]));
  root.append(s("text", { x: (left + width) / 2, y: bottom + 34, fill: soft, "text-anchor": "middle" }, of.x));
  const fits = (/** @type {number} */ v) => Number.isFinite(v) && (!log || v > 0);
  for (const each of of.series) {
    const band = (each.band ?? []).filter((row) => fits(row[1]) && fits(row[2]));
    if (band.length > 1) root.append(s("polygon", { points: [...band.map((row) => `${x(row[0]).toFixed(1)},${y(row[2]).toFixed(1)}`), ...band.reverse().map((row) => `${x(row[0]).toFixed(1)},${y(row[1]).toFixed(1)}`)].join(" "), fill: each.color, "fill-opacity": 0.16 }));
    const points = each.points.filter((point) => fits(point[1]));
    if (each.line !== false) root.append(s("polyline", { points: points.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(" "), fill: "none", stroke: each.color, "stroke-width": 1.8, "stroke-dasharray": each.dash ? "6 3" : null }));
    if (each.line === false || points.length < 3) each.points.forEach((point, i) => { if (fits(point[1])) root.append(dot(x(point[0]), y(point[1]), each, i, of.open)); });
  }
  named.forEach((each, i) => root.append(s("rect", { x: 10 + (i % perLine) * wide, y: height + Math.floor(i / perLine) * LINE - 6, width: 11, height: 11, fill: each.color, rx: 2 }),
    s("text", { x: 26 + (i % perLine) * wide, y: height + Math.floor(i / perLine) * LINE + 4, fill: ink }, each.name.length > letters ? `${each.name.slice(0, letters - 1)}…` : each.name)));
  return root;
}

/** @param {number} cx @param {number} cy @param {Series} of @param {number} i @param {((id: string) => void)|undefined} open */
function dot(cx, cy, of, i, open) {
  const made = s("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: 5, fill: of.color, "fill-opacity": 0.8, stroke: color("paper") }, s("title", {}, of.titles?.[i] ?? of.name));
  const id = of.ids?.[i];
  if (open && id) { made.setAttribute("class", "dot"); made.addEventListener("click", () => open(id)); }
  return made;
}

/** At least three values for a logarithmic axis: powers of ten, else 1, 2 and 5 of each, else round numbers. @param {number} low @param {number} high @returns {number[]} */
export function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)), exponents = Array.from({ length: Math.ceil(Math.log10(high)) - first + 1 }, (_, i) => first + i);
  const within = (/** @type {number[]} */ digits, step = 1) => exponents.filter((power) => power % step === 0).flatMap((power) => digits.map((digit) => Number(`${digit}e${power}`))).filter((value) => value >= low && value <= high);
  const powers = within([1]), between = within([1, 2, 5]);
  if (powers.length > 2) return within([1], Math.ceil(powers.length / 7));
  return between.length > 2 ? between : [5, 9].map((most) => ticks(low, high, most)).find((found) => found.length > 2) ?? [low, high];
}

/** The scale of a logarithmic axis, as wide as its values and not as whole decades. */
export const LOG_SCALE = { distr: 3, range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => range(low > 0 ? [low, high] : [], true) };

/** A logarithmic axis of a plot, which by itself names digits of whole decades alone. */
export const LOG_AXIS = { splits: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ low, /** @type {number} */ high) => logTicks(low, high), filter: (/** @type {any} */ _, /** @type {number[]} */ splits) => splits };

/** Buttons that take a chart home. @param {() => Picture} make */
export function downloads(make) {
  return [["SVG", () => svg(make())], ["PNG", () => png(make())], ["CSV", () => table(make())]].map(([words, then]) => el("button", { class: "save", click: then, "aria-label": `save as ${words}` }, String(words)));
}

/** @param {Picture} of */
function svg(of) {
  save(`${fileName(of.title)}.svg`, new Blob([new XMLSerializer().serializeToString(picture(of))], { type: "image/svg+xml" }));
}

/** @param {Picture} of */
function png(of) {
  const drawn = picture(of), image = new Image(), width = Number(drawn.getAttribute("width")), height = Number(drawn.getAttribute("height"));
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = 2 * width;
    canvas.height = 2 * height;
    canvas.getContext("2d")?.drawImage(image, 0, 0, 2 * width, 2 * height);
    canvas.toBlob((blob) => blob && save(`${fileName(of.title)}.png`, blob), "image/png");
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(drawn))}`;
}

/** A row for each point: of a curve with a band its ends too. @param {Picture} of */
function table(of) {
  const words = (/** @type {any} */ value) => { const text = String(value ?? ""); return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text; };
  const rows = [["curve", of.x, of.y, "lowest", "highest"]];
  for (const each of of.series) {
    const band = new Map((each.band ?? []).map((row) => [row[0], row]));
    each.points.forEach((point, i) => { const x = of.xTicks ? of.xTicks[point[0]]?.[1] ?? point[0] : point[0], ends = band.get(point[0]); rows.push([each.titles?.[i] ?? each.name, x, point[1], ends?.[1] ?? "", ends?.[2] ?? ""].map(String)); });
  }
  save(`${fileName(of.title)}.csv`, new Blob([`${rows.map((row) => row.map(words).join(",")).join("\n")}\n`], { type: "text/csv" }));
}

/** @param {string} title */
function fileName(title) {
  return title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "chart";
}

/** @param {string} name @param {Blob} blob */
function save(name, blob) {
  const link = /** @type {HTMLAnchorElement} */ (el("a", { href: URL.createObjectURL(blob), download: name }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** The mean of the last `window` values that are there; gaps stay gaps. @param {(number|null|undefined)[]} values @param {number} window */
export function smoothed(values, window) {
  if (window < 2) return values;
  /** @type {number[]} */
  const last = [];
  return values.map((value) => {
    if (value === null || value === undefined) return null;
    last.push(value);
    if (last.length > window) last.shift();
    return last.reduce((sum, each) => sum + each, 0) / last.length;
  });
}

export const SMOOTHINGS = /** @type {[string, string][]} */ ([["1", "none"], ["3", "mean of 3 points"], ["5", "mean of 5"], ["10", "mean of 10"], ["25", "mean of 25"]]);
