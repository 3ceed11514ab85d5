// What each process took of its machine: CPU, memory, and memory of a GPU, by real time.
import { bytes, choice, color, count, el, figure, onColors, seconds } from "./dom.js";
import { on, view } from "./model.js";
import { downloads, picture } from "./picture.js";
import { keep, state } from "./state.js";

const MOST = 6, COLORS = ["c0", "c1", "c2", "c3", "c4", "c5"];
const CHARTS = /** @type {[string, string, (v: number, digits?: number) => string][]} */ ([["CPU", "cores", figure], ["Memory", "memory_bytes", (v, digits) => bytes(Math.round(v), digits)], ["Memory of the GPU", "gpu_bytes", (v, digits) => bytes(Math.round(v), digits)]]);

/** @returns {HTMLElement} */
export function resources() {
  const boxes = el("div", { class: "charts" }), tools = el("div", { class: "tools" }), words = el("p", { class: "hint" });
  const section = el("section", { id: "resources", hidden: true }, el("h2", {}, "What it took of the machine"), words, tools, boxes);
  const draw = () => {
    const found = view.data.resources;
    section.hidden = !found;
    if (!found) return;
    const names = found.processes.map((/** @type {any} */ each) => each.name), asked = state().get("took") ?? "";
    const chosen = asked === "all" || names.includes(asked) ? asked : "";
    words.textContent = `Of ${count(found.num_processes)} ${found.num_processes === 1 ? "process" : "processes"}, by seconds of real time. CPU is in cores. Memory is what lies in RAM; pages that processes share are counted in each.`;
    if (!tools.contains(document.activeElement)) tools.replaceChildren(choice("processes", [["", names.length > MOST ? `the ${MOST} with the most CPU time` : "each"], ["all", "all together"], ...names.map((/** @type {string} */ name) => /** @type {[string, string]} */ ([name, name]))], chosen, (name) => { keep({ took: name || null }); /** @type {HTMLElement|null} */ (document.activeElement)?.blur(); draw(); }));
    const shown = chosen === "all" ? [{ ...found.total, name: "all together" }] : chosen ? found.processes.filter((/** @type {any} */ each) => each.name === chosen) : found.processes.slice(0, MOST);
    boxes.replaceChildren(...CHARTS.map(([title, key, of]) => {
      const drawn = shown.filter((/** @type {any} */ each) => each[key]?.some((/** @type {number|null} */ value) => value !== null));
      return drawn.length ? chart(title, key, of, drawn, found.at_s) : null;
    }).filter((each) => each !== null));
  };
  on(["data"], draw);
  onColors(draw);
  let width = 0;
  new ResizeObserver(() => { if (view.data && Math.abs(boxes.clientWidth - width) > 2) { width = boxes.clientWidth; draw(); } }).observe(boxes);
  window.addEventListener("hashchange", () => { if (view.data) draw(); });
  return section;
}

/** @param {string} title @param {string} key @param {(v: number, digits?: number) => string} of @param {any[]} shown @param {number[]} at */
function chart(title, key, of, shown, at) {
  const make = (/** @type {number} */ width) => ({
    title: `${title} by time`, x: "real time", y: title === "CPU" ? "cores" : "bytes", width, height: 240, xWords: seconds, yWords: of,
    series: shown.map((each, i) => ({ name: each.name, color: color(COLORS[i % COLORS.length]), points: /** @type {[number, number][]} */ (at.map((when, k) => [when, each[key][k]]).filter((point) => point[1] !== null)) })),
  });
  const place = el("div"), box = el("figure", { class: "chart" }, place, el("div", { class: "tools" }, ...downloads(() => make(760))));
  requestAnimationFrame(() => { if (place.isConnected) place.replaceChildren(picture(make(Math.max(260, place.clientWidth)))); });
  return box;
}
