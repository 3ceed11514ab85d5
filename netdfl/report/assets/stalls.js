// Stalls: the sentence, the wait-for graph, the witness.
import { color, count, el, prose, reveal, seconds, table } from "./dom.js";
import { choose, goTo, nodes, now, on, rowOf, view } from "./model.js";
import { keep } from "./state.js";

/** @type {HTMLElement|null} */
let shown = null;
/** @type {any} */
let graph = null;
let open = -1;
const when = el("p", { class: "hint" });

/** @returns {HTMLElement} */
export function stalls() {
  const list = el("div", { class: "tools" });
  shown = el("div", { id: "stall", "aria-live": "polite" });
  const section = el("section", { id: "stalls" }, el("h2", {}, "Who waited for whom"),
    el("p", { class: "hint" }, "An arrow goes from who waits to whom it waits for. The witness, the part that proves it, is thick and red."), list, shown);
  on(["data"], () => {
    section.hidden = !view.data.stalls.length;
    list.replaceChildren(...view.data.stalls.map((/** @type {any} */ stall, /** @type {number} */ place) => el("button", { click: () => openStall(place), "data-stall": place }, `${stall.cause.replaceAll("_", " ")} in round ${stall.round}: ${whose(stall.roots)}${stall.culprits.length ? ` for ${whose(stall.culprits)}` : ""}, since ${seconds(stall.began_s)}${stall.over ? ", over" : stall.permanent ? ", for good" : ""}`)));
    if (open >= view.data.stalls.length) { open = -1; shown?.replaceChildren(); }
  });
  on(["at"], tell);
  return section;
}

/** Nodes in words, up to three by number. @param {number[]} nodes */
function whose(nodes) {
  return nodes.length > 3 ? `${count(nodes.length)} nodes` : `node${nodes.length === 1 ? "" : "s"} ${nodes.join(", ")}`;
}

/** Say when the opened stall was, and of which moment its graph is. */
function tell() {
  const stall = view.data.stalls[open];
  if (!stall) return;
  const began = now() === stall.began_s ? `The handle is where it began, at ${seconds(stall.began_s)}` : `It began at ${seconds(stall.began_s)}`;
  const ended = stall.over && stall.until_s !== null ? ` It ended at ${seconds(stall.until_s)}.` : "";
  const words = stall.found_s > stall.began_s ? `${began}; the graph is of ${seconds(stall.found_s)}, when it was found.${ended}` : `${began}.${ended}`;
  if (when.textContent !== words) when.textContent = words;  // or each step of the handle would be read aloud
}

/** Show one stall, and the moment at which it began. @param {number} place */
export function openStall(place) {
  const stall = view.data.stalls[place];
  open = place;
  keep({ stall: place });
  goTo(stall.began_s);  // and tells when it was
  const canvas = el("div", { class: "graph", role: "img", "aria-label": `wait-for graph: ${stall.text}` });
  const who = stall.waits.map((/** @type {number[]} */ [node, whom]) => [String(node), String(whom), stall.since[node] === undefined ? "–" : seconds(stall.since[node]), stall.roots.includes(node) ? "root" : "behind"]);
  shown?.replaceChildren(el("p", { class: "sentence" }, ...prose(stall.text)), when, el("div", { class: "fleet" }, canvas,
    table(["waits", "for", "since", ""], who, `Who waits for whom, of ${stall.num_nodes} nodes`, "high")));
  draw(canvas, stall);
  if (shown) reveal(shown);
}

/** @param {HTMLElement} canvas @param {any} stall */
function draw(canvas, stall) {
  const witness = new Set(stall.witness.map((/** @type {number[]} */ edge) => edge.join("-")));
  const edges = new Map([...stall.waits, ...stall.witness].map((edge) => [edge.join("-"), edge]));
  const members = stall.nodes;
  const { fleet } = view.data, wide = 150 * Math.max(1, Math.sqrt(nodes().length / 12)), known = members.every((/** @type {number} */ node) => rowOf(node) !== undefined);
  // Each node stands where it stands in the graph of the fleet; in a circle where not all of them are there.
  const at = (/** @type {number} */ i) => known ? { x: wide * fleet.x[/** @type {number} */ (rowOf(members[i]))], y: wide * fleet.y[/** @type {number} */ (rowOf(members[i]))] } : members.length === 1 ? { x: 0, y: 0 } : { x: 40 * Math.sqrt(members.length) * Math.cos(2 * Math.PI * i / members.length), y: 40 * Math.sqrt(members.length) * Math.sin(2 * Math.PI * i / members.length) };
  graph?.destroy();
  graph = cytoscape({ container: canvas, autoungrabify: true, boxSelectionEnabled: false, userZoomingEnabled: false, layout: { name: "preset", fit: true, padding: 25 },
    elements: [
      ...members.map((/** @type {number} */ node, /** @type {number} */ i) => ({ group: "nodes", data: { id: `n${node}`, node, label: String(node), color: color(stall.roots.includes(node) ? "fail" : stall.culprits.includes(node) ? "c0" : "c1"), shape: stall.roots.includes(node) ? "diamond" : stall.culprits.includes(node) ? "rectangle" : "ellipse" }, position: at(i) })),
      ...[...edges].filter(([, [src, dst]]) => members.includes(src) && members.includes(dst)).map(([id, [src, dst]]) => ({ group: "edges", data: { id: `e${id}`, source: `n${src}`, target: `n${dst}`, color: color(witness.has(id) ? "fail" : "soft"), width: witness.has(id) ? 4 : 1.4 } })),
    ],
    style: [
      { selector: "node", style: { "background-color": "data(color)", shape: "data(shape)", label: "data(label)", color: color("paper"), "text-valign": "center", "font-size": 12, width: 28, height: 28 } },
      { selector: "edge", style: { width: "data(width)", "line-color": "data(color)", "target-arrow-color": "data(color)", "target-arrow-shape": "triangle", "curve-style": "bezier" } },
    ] });
  canvas.graph = graph;
  graph.on("tap", "node", (/** @type {any} */ event) => choose(event.target.data("node")));
}
