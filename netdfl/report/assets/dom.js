// Elements and words. Whatever a run says reaches the page as text, never as markup.

/**
 * Make an element. Attributes that are functions listen; `text` and children become text nodes.
 * @param {string} tag
 * @param {Object<string, any>} [attributes]
 * @param {...(Node|string|null)} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Scroll to what was opened, once it is laid out; the bar of time, which stays above all, hides none of it. @param {HTMLElement} what */
export function reveal(what) {
  requestAnimationFrame(() => { keepClear(); what.scrollIntoView({ block: "nearest" }); });
}

/** Tell the style sheet how high the bar of time is: nothing that is scrolled to lies under it. */
export function keepClear() {
  document.documentElement.style.setProperty("--bar", `${document.getElementById("bar")?.offsetHeight ?? 0}px`);
}

/** Call `then` when colors change: for a dark screen, a light one, and for paper, which is always light. @param {() => void} then */
export function onColors(then) {
  window.matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", then);
}

/** @param {string} name @returns {string} The value of a color of the style sheet. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** @param {number|null|undefined} value @param {number} [digits] @returns {string} A number with three digits, or as many as are asked for. */
export function figure(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-4)) return Number(value.toPrecision(digits)).toExponential();
  return String(Number(value.toPrecision(digits)));
}

/** @param {number|null|undefined} value @param {number} [digits] @returns {string} A share as a percentage. */
export function percent(value, digits = 3) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(digits - 2)}%`;
}

/** The words of an axis, with as many digits as tell its values apart. @param {(number|null)[]} values @param {(value: any, digits?: number) => string} of @returns {(string|null)[]} */
export function apart(values, of) {
  const there = values.filter((value) => value !== null), digits = [3, 4, 5, 6, 7].find((each) => new Set(there.map((value) => of(value, each))).size === there.length);
  return values.map((value) => value === null ? null : of(value, digits ?? 3));
}

const SHARES = ["mean_local_accuracy", "mean_personal_accuracy"];

/** A metric that runs have beside the usual figures: its name, words, and how its values are written. @param {string} name @returns {[string, string, (value: any) => string]} */
export function metric(name) {
  return [name, name.replaceAll("_", " "), SHARES.includes(name) ? percent : figure];
}

/** @param {number|null|undefined} value @param {number} [digits] @returns {string} `40 ms`, `3.2 s`, `2 min 5 s`. */
export function seconds(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) < 1) return `${figure(1000 * value, digits)} ms`;
  if (value < 100) return `${figure(value, digits)} s`;
  const whole = Math.round(value), hours = Math.floor(whole / 3600), minutes = Math.floor((whole % 3600) / 60);
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
}

/** @param {number|null|undefined} value @param {number} [digits] @returns {string} `12.3 MB`. */
export function bytes(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  for (const [size, unit] of /** @type {[number, string][]} */ ([[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])) {
    if (value >= size) return `${figure(value / size, digits)} ${unit}`;
  }
  return `${value} B`;
}

/** @param {number} value @returns {string} A count with separators. */
export function count(value) {
  return value.toLocaleString("en");
}

/** Text for the page, in which what stands between backticks is code. @param {string} text @returns {(string|Node)[]} */
export function prose(text) {
  return String(text ?? "").split("`").map((part, i, all) => i % 2 === 0 ? part : i < all.length - 1 ? el("code", {}, part) : `\`${part}`);
}

/** Longer texts in a cell are broken into lines, none of a single word. */
const LONG = 24;

/**
 * A table in a box that scrolls.
 * @param {string[]} head @param {(string|Node)[][]} rows @param {string} caption @param {string} [extra]
 */
export function table(head, rows, caption, extra = "") {
  return el("div", { class: `scroll ${extra}`, tabindex: 0, role: "region", "aria-label": caption }, el("table", {},
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, ...head.map((cell) => el("th", { scope: "col" }, cell)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", { class: typeof cell === "string" && cell.length > LONG ? "long" : null }, ...(typeof cell === "string" ? prose(cell) : [cell]))))))));
}

/** A list to choose from, with its label. @param {string} label @param {[string, string][]} options @param {string} chosen @param {(value: string) => void} then */
export function choice(label, options, chosen, then) {
  const select = /** @type {HTMLSelectElement} */ (el("select", { change: () => then(select.value) },
    ...options.map(([value, words]) => el("option", { value, selected: value === chosen }, words))));
  return el("label", {}, label, select);
}

/** What colors mean. @param {[string, string][]} entries class and words */
export function key(entries) {
  return el("p", { class: "key" }, ...entries.map(([name, words]) => el("span", { class: name }, words)));
}

/** What colors mean that are no class: of many parts. @param {[string, string][]} entries color and words */
export function swatches(entries) {
  return el("p", { class: "key" }, ...entries.map(([of, words]) => { const made = el("span", {}, words); made.style.setProperty("--of", of); return made; }));
}

/** Fit a canvas to its place on the page; returns its context, in pixels of the page. @param {HTMLCanvasElement} canvas @param {number} height */
export function fit(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || canvas.parentElement?.clientWidth || 300;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width };
}

const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

/** A color of the scale that every eye tells apart, from dark (0) to light (1). @param {number} share */
export function scale(share) {
  const place = Math.max(0, Math.min(1, share)) * (VIRIDIS.length - 1), low = Math.min(Math.floor(place), VIRIDIS.length - 2);
  const mixed = VIRIDIS[low].map((part, i) => Math.round(part + (place - low) * (VIRIDIS[low + 1][i] - part)));
  return `rgb(${mixed.join(",")})`;
}
