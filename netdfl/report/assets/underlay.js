// The network below the links: sites, core links with their load at the moment of the handle, and who shares them.
import { bytes, choice, color, el, figure, fit, onColors, percent, scale, seconds } from "./dom.js";
import { end, goToShare, isEnd, now, on, placeOf, view } from "./model.js";
import { ticks } from "./picture.js";
import { keep, state } from "./state.js";

/** @typedef {{src: number, dst: number, rate_bps: number|null, latency_s: number, loss: number, down: [number, number|null][], nbytes: number, load: (number|null)[]|null, shared: string, num_shared: number}} CoreLink */

const SVG = "http://www.w3.org/2000/svg", SIZE = 420, ROOM = 46, ROW = 18, MOST_ROWS = 24, NAMED = 60;
const chosen = { link: -1 };

/** @returns {HTMLElement} */
export function underlay() {
  const place = el("div", { class: "sites" }), said = el("p", { id: "core-link", "aria-live": "polite" }), tools = el("div", { class: "tools" });
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { class: "lanes", role: "img", "aria-label": "the load of each core link by time, one row each; the list of core links above says the same of the one that is chosen" }));
  const hint = el("p", { class: "hint" }), legend = el("p", { class: "hint" });
  const section = el("section", { id: "underlay" }, el("h2", {}, "The underlay: who shares which core link"), tools, said, place, legend, canvas, hint);
  const paint = () => { if (view.data && !section.hidden) { draw(place); heat(canvas); said.textContent = words(chosen.link); } };
  const pick = (/** @type {number} */ link) => { chosen.link = link; keep({ core: name(link) }); list(); paint(); };
  const list = () => tools.replaceChildren(choice("core link", ranked().map((link) => [String(link), name(link)]), String(chosen.link), (link) => pick(Number(link))));
  let due = false;
  const soon = () => { if (!due) { due = true; requestAnimationFrame(() => { due = false; paint(); }); } };
  on(["data"], () => {
    section.hidden = !view.data.underlay?.links.length;
    if (section.hidden) return;
    const of = view.data.underlay, narrow = of.links.findIndex((/** @type {CoreLink} */ _, /** @type {number} */ link) => name(link) === of.bottleneck);
    const asked = ranked().find((link) => name(link) === state().get("core"));
    if (asked !== undefined) chosen.link = asked;
    if (!of.links[chosen.link]) chosen.link = narrow >= 0 ? narrow : ranked()[0];
    list();
    legend.textContent = "Lines are core links, one for each direction, on the right of who travels on it: from dark (idle) to light (full), wider where more goes over; dashed in red while cut. The whole run's mean is shown where the handle is at its end. A click chooses.";
    hint.textContent = (of.by_time ? "Rows are core links, the fullest first: dark is idle, light is full. A message's bytes count as evenly spread over its time. A click sets the moment." : "This record has no time of every message, so loads by time are left out.")
      + (of.total > of.links.length ? ` ${of.links.length} of ${of.total} core links are shown, the fullest.` : "");
    canvas.hidden = !of.by_time;
    soon();
  });
  on(["at"], soon);
  onColors(soon);
  place.addEventListener("click", (event) => { const link = /** @type {Element} */ (event.target).getAttribute("data-link"); if (link !== null) pick(Number(link)); });
  canvas.addEventListener("click", (event) => {
    const link = ranked()[Math.floor(event.offsetY / ROW)], left = margin(canvas.clientWidth);
    if (link === undefined) return;
    if (event.offsetX >= left) goToShare((event.offsetX - left) / (canvas.clientWidth - left - 4));
    pick(link);
  });
  new ResizeObserver(soon).observe(section);
  return section;
}

/** @param {number} link */
function name(link) {
  const { links, sites } = view.data.underlay;
  return `${sites[links[link].src]}->${sites[links[link].dst]}`;
}

/** The core links, the fullest first, as the data have them. @returns {number[]} */
function ranked() {
  return view.data.underlay.links.map((/** @type {CoreLink} */ _, /** @type {number} */ link) => link);
}

/** The load of a core link at the moment of the handle, or of the whole run at its end. @param {CoreLink} of */
function loadNow(of) {
  if (!of.load || !view.data.underlay.by_time) return null;
  if (!isEnd()) return of.load[placeOf(now())];
  const moments = view.data.frame.moments, last = end();
  return last > 0 ? of.load.reduce((sum, load, i) => sum + (load ?? 0) * (moments[i] - (moments[i - 1] ?? 0)), 0) / last : null;
}

/** @param {CoreLink} of */
function isDown(of) {
  return !isEnd() && of.down.some(([since, until]) => since <= now() && (until === null || now() < until));
}

/** @param {number} link */
function words(link) {
  const of = /** @type {CoreLink} */ (view.data.underlay.links[link]), load = loadNow(of);
  const rate = of.rate_bps === null ? "unlimited" : `${figure(of.rate_bps / 1e6)} Mbit/s`;
  const used = isDown(of) ? "cut at this moment" : load === null ? "" : `${percent(load)} of its rate in use ${isEnd() ? "over the whole run" : `at ${seconds(now())}`}`;
  const shared = of.num_shared ? `shared by ${of.num_shared} link${of.num_shared > 1 ? "s" : ""} of nodes: ${of.shared}` : "nothing crossed it";
  const narrow = name(link) === view.data.underlay.bottleneck ? "the bottleneck of the run" : "";
  const loss = of.loss ? `, loses ${percent(of.loss)}` : "";
  return `${name(link)}: ${[narrow, `${rate}, ${seconds(of.latency_s)}${loss}`, used, `${bytes(of.nbytes)} in all`, shared].filter(Boolean).join("; ")}.`;
}

/** @param {string} tag @param {Object<string, any>} attributes @param {...(Node|string)} children */
function s(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

/** @param {HTMLElement} place */
function draw(place) {
  const of = view.data.underlay, wide = Math.max(320, Math.min(900, place.clientWidth || SIZE)), fill = color("ink");
  const at = (/** @type {number} */ site) => [wide / 2 + of.x[site] * (wide / 2 - 1.6 * ROOM), SIZE / 2 + of.y[site] * (SIZE / 2 - ROOM)];
  const root = s("svg", { viewBox: `0 0 ${wide} ${SIZE}`, width: wide, height: SIZE, role: "img", "aria-label": `${of.sites.length} sites and ${of.total} core links`, "font-family": "system-ui, sans-serif", "font-size": of.sites.length > NAMED ? 9 : 12 });
  const most = Math.max(1, ...of.links.map((/** @type {CoreLink} */ each) => each.nbytes));
  of.links.forEach((/** @type {CoreLink} */ each, /** @type {number} */ link) => {
    const [x1, y1] = at(each.src), [x2, y2] = at(each.dst), long = Math.hypot(x2 - x1, y2 - y1) || 1, aside = 4 / long;
    const load = loadNow(each), down = isDown(each), ends = { x1: x1 - aside * (y2 - y1), y1: y1 + aside * (x2 - x1), x2: x2 - aside * (y2 - y1), y2: y2 + aside * (x2 - x1) };
    const thick = 1.5 + 5 * (load === null ? each.nbytes / most : Math.min(1, load));
    if (link === chosen.link) root.append(s("line", { ...ends, stroke: fill, "stroke-width": thick + 5, "stroke-linecap": "round", opacity: 0.35 }));
    root.append(s("line", { ...ends, "data-link": link, class: "core", stroke: down ? color("fail") : load === null ? color("soft") : scale(load), "stroke-width": down ? 3 : thick, "stroke-dasharray": down ? "6 4" : null }, s("title", {}, words(link))));
    root.append(s("line", { ...ends, "data-link": link, class: "core", stroke: "transparent", "stroke-width": 9 }));
  });
  of.sites.forEach((/** @type {string} */ site, /** @type {number} */ number) => {
    const [x, y] = at(number), nodes = of.nodes[number];
    root.append(s("circle", { cx: x, cy: y, r: nodes ? 7 : 4, fill: nodes ? color("c0") : color("paper"), stroke: fill, "stroke-width": 1.5 }, s("title", {}, nodes ? `${site}: nodes ${nodes}` : `${site}: no nodes`)));
    if (of.sites.length <= 2 * NAMED) root.append(s("text", { x, y: y - 11, fill, "text-anchor": "middle" }, site.slice(0, 18)));
    if (nodes && of.sites.length <= NAMED) root.append(s("text", { x, y: y + 21, fill: color("soft"), "text-anchor": "middle", "font-size": 10 }, (nodes.length > 16 ? `${nodes.slice(0, 15)}…` : nodes)));
  });
  place.replaceChildren(root);
}

/** Where rows begin: names take at most a third. @param {number} width */
function margin(width) {
  return Math.min(150, Math.floor(width / 3));
}

/** @param {HTMLCanvasElement} canvas */
function heat(canvas) {
  if (canvas.hidden) return;
  const of = view.data.underlay, rows = ranked().slice(0, MOST_ROWS), { context, width } = fit(canvas, rows.length * ROW + 22), left = margin(width);
  const moments = view.data.frame.moments, last = moments[moments.length - 1], x = (/** @type {number} */ time) => left + (width - left - 4) * time / last;
  context.font = "12px system-ui, sans-serif";
  rows.forEach((link, row) => {
    const each = /** @type {CoreLink} */ (of.links[link]), top = row * ROW;
    each.load?.forEach((load, i) => { if (i) { context.fillStyle = scale(load ?? 0); context.fillRect(x(moments[i - 1]), top + 2, Math.max(1, x(moments[i]) - x(moments[i - 1]) + 0.4), ROW - 4); } });
    context.fillStyle = color("fail");
    for (const [since, until] of each.down) context.fillRect(x(since), top + ROW - 4, x(Math.min(last, until ?? last)) - x(since), 2);
    context.fillStyle = color(link === chosen.link ? "ink" : "soft");
    const room = Math.floor(left / 7), text = `${name(link) === of.bottleneck ? "▸ " : ""}${name(link)}`;
    context.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, 2, top + 13);
  });
  context.fillStyle = color("soft");
  context.font = "11px system-ui, sans-serif";
  const times = ticks(0, last, Math.max(2, Math.floor((width - left) / 110)));
  for (const time of times) { context.textAlign = time === 0 ? "left" : x(time) > width - 24 ? "right" : "center"; context.fillText(seconds(time), x(time), rows.length * ROW + 14); }
  context.textAlign = "left";
  context.strokeStyle = color("ink");
  context.setLineDash([4, 4]); context.beginPath(); context.moveTo(x(now()), 0); context.lineTo(x(now()), rows.length * ROW); context.stroke(); context.setLineDash([]);
}
