// The fleet as a graph: nodes and directed links, colored by what one chooses.
import { bytes, choice, color, el, figure, fit, onColors, percent, scale, seconds } from "./dom.js";
import { choose, fleetRound, hasAllMessages, isEnd, linksNow, linksOfRound, nodes, on, ownFigures, phaseOf, quantile, valueOf, view } from "./model.js";
import { panel } from "./panel.js";
import { keep, oneOf, state } from "./state.js";

const SIZE = 500;
export const MOST_LINKS = 1500;
/** With more links than these only those of the chosen node are drawn, and those that lost most. */
const MOST_WORST = 150;
const PHASES = /** @type {[string, string][]} */ ([["training", "c0"], ["waiting", "c1"], ["mixing", "c2"], ["paused", "c5"], ["down", "fail"], ["ended", "soft"], ["running", "c0"], ["", "line"]]);

const NODES = /** @type {[string, string, (v: number|null) => string][]} */ ([["test_accuracy", "accuracy", percent], ["train_loss", "loss", figure], ["round", "rounds done", figure], ["phase", "what it does", String], ["weight", "push-sum weight", figure], ["bytes_sent", "bytes sent", bytes]]);
const LINKS = /** @type {[string, string, (v: number|null) => string][]} */ ([["lost", "share lost", percent], ["nbytes", "bytes", bytes], ["delay", "median delay", seconds], ["late", "share late", percent], ["fate", "worst fate", String]]);

const chosen = { node: "", link: "lost", which: "" };
const BLANK_NODE = { color: "#888", text: "#000", border: 0, rim: "#888", rimstyle: "solid" };
const BLANK_LINK = { color: "#888", width: 1, opacity: 0.5, dash: "solid" };
/** @type {any} */
let cy = null;
let worstOnly = false;

/** @returns {HTMLElement} */
export function fleet() {
  const place = el("div", { class: "graph", role: "img", "aria-label": "the graph of the fleet; the lists of nodes and links beside it choose the same" });
  const tools = el("div", { class: "tools" }), legend = el("div", { class: "scale" }), hint = el("p", { class: "hint" });
  const box = el("div", { class: "fleet" }, el("div", {}, place, legend, hint), panel());
  const section = el("section", { id: "fleet" }, el("h2", {}, "The fleet"), tools, box);
  const paint = () => requestAnimationFrame(() => { if (cy) restyle(legend); });
  const set = (/** @type {Object<string, string>} */ what) => { keep(what); fromAddress(); paint(); };
  const head = () => {
    const { known, links } = fromAddress();
    tools.replaceChildren(
      choice("nodes by", known.map(([name, words]) => [name, words]), chosen.node, (nodes_by) => set({ nodes_by })),
      choice("links by", links.map(([name, words]) => [name, words]), chosen.link, (links_by) => set({ links_by })),
      choice("links", [["all", "all until now"], ["round", "of this round"]], chosen.which, (links) => set({ links })),
      el("button", { click: () => cy?.fit(undefined, 20) }, "whole graph"),
      ...finder());
  };
  on(["data"], () => {
    head();
    box.classList.toggle("few", view.data.frame.num_nodes <= 4);
    build(place);
    hint.textContent = words();
    paint();
  });
  on(["at", "status"], paint);
  on(["chosen"], () => { if (worstOnly) build(place); mark(); paint(); });
  onColors(paint);
  window.addEventListener("hashchange", () => { if (view.data) { head(); paint(); } });
  return section;
}

/** Take from the address by what nodes and links are colored, and which are drawn; returns what there is to choose from. */
function fromAddress() {
  const { by_node, frame, fleet, links: kept, messages } = view.data;
  const known = colorings().filter(([name]) => name === "round" || (name === "phase" ? !frame.by_round : by_node[name]?.some(Boolean)));
  const names = known.map(([name]) => name), asked = state().get("nodes_by") ?? "", telling = names.find((name) => new Set(by_node[name] ?? []).size > 2);
  chosen.node = [asked, chosen.node, telling ?? names[0]].find((name) => names.includes(name)) ?? names[0];
  const links = LINKS.filter(([name]) => name !== "delay" || kept.median);
  chosen.link = oneOf("links_by", links.map(([name]) => name));
  chosen.which = oneOf("links", fleet.varies && messages.every === 1 ? ["round", "all"] : ["all", "round"]);
  return { known, links };
}

function words() {
  const { fleet, frame } = view.data, shown = nodes().length;
  const some = shown < frame.num_nodes ? ` ${shown} of ${frame.num_nodes} nodes are drawn.` : "";
  const links = worstOnly ? " It has too many links to draw: those of the chosen node are drawn, and those that lost most." : "";
  const moment = view.data.messages.every > 1 ? " Colors of links are of the whole run." : "";
  return `${fleet.words}${some}${links}${moment}`;
}

/** By what nodes can be colored. */
function colorings() {
  const own = ownFigures().map(([name, words]) => /** @type {typeof NODES[0]} */ ([name, words, figure]));
  return [NODES[0], ...own, ...NODES.slice(1)];
}

/** Boxes in which one names a node or a link: the keyboard's way to choose. */
function finder() {
  const node = /** @type {HTMLInputElement} */ (el("input", { type: "search", size: 5, id: "find-node", inputmode: "numeric" }));
  const link = /** @type {HTMLInputElement} */ (el("input", { type: "search", size: 7, id: "find-link", placeholder: "3-5" }));
  node.addEventListener("change", () => { const number = Number(node.value); if (node.value && nodes().includes(number)) choose(number); });
  link.addEventListener("change", () => {
    const ends = link.value.match(/^\s*(\d+)\D+(\d+)\s*$/);
    if (ends) choose(null, [Number(ends[1]), Number(ends[2])]);
  });
  return [el("label", {}, "node", node), el("label", {}, "link", link)];
}

/** The links that can be drawn: those of round 0, and those that carried something. */
function edges() {
  /** @type {Map<string, [number, number]>} */
  const found = new Map();
  const { fleet, links } = view.data;
  if (!links.src.length) for (let i = 0; i < fleet.src.length; i++) found.set(`${fleet.src[i]}-${fleet.dst[i]}`, [fleet.src[i], fleet.dst[i]]);
  for (let i = 0; i < links.src.length; i++) found.set(`${links.src[i]}-${links.dst[i]}`, [links.src[i], links.dst[i]]);
  const shown = new Set(nodes());
  const all = [...found].filter(([, [src, dst]]) => src !== dst && shown.has(src) && shown.has(dst));
  worstOnly = all.length > MOST_LINKS;
  if (!worstOnly) return all;
  const lost = (links.lost ?? []).filter(Boolean).length;
  const worst = new Set(all.slice(0, Math.min(lost, MOST_WORST)).map(([id]) => id));
  const of = (/** @type {[number, number]} */ ends) => ends.includes(view.node ?? -1) || (view.link !== null && view.link[0] === ends[0] && view.link[1] === ends[1]);
  return all.filter(([id, ends]) => worst.has(id) || of(ends));
}

/** @param {HTMLElement} place */
function build(place) {
  const { fleet } = view.data, shown = nodes(), drawn = edges();
  const elements = [
    ...shown.map((node, i) => ({ group: "nodes", data: { ...BLANK_NODE, id: `n${node}`, node, label: shown.length <= 120 ? String(node) : "" }, position: { x: fleet.x[i] * spread(shown.length), y: fleet.y[i] * spread(shown.length) } })),
    ...drawn.map(([id, [src, dst]]) => ({ group: "edges", data: { ...BLANK_LINK, id: `e${id}`, source: `n${src}`, target: `n${dst}`, src, dst } })),
  ];
  if (cy && cy.nodes().length === shown.length) {
    cy.batch(() => { cy.edges().remove(); cy.add(elements.filter((each) => each.group === "edges")); });
    return;
  }
  cy?.destroy();
  const large = shown.length > 200;
  cy = cytoscape({ container: place, elements, layout: { name: "preset", fit: true, padding: 20 }, autoungrabify: true, boxSelectionEnabled: false,
    pixelRatio: large ? 1 : "auto", hideEdgesOnViewport: large, textureOnViewport: large, userZoomingEnabled: true, style: sheet(shown.length) });
  cy.on("tap", "node", (/** @type {any} */ event) => choose(event.target.data("node")));
  cy.on("tap", "edge", (/** @type {any} */ event) => choose(null, [event.target.data("src"), event.target.data("dst")]));
  place.graph = cy;
}

/** How wide the picture is, so that nodes keep apart. @param {number} count */
function spread(count) {
  return count > 200 ? 15 * Math.sqrt(count) : Math.max(120, SIZE * Math.sqrt(count / 60));
}

/** @param {number} count */
function sheet(count) {
  const size = count <= 30 ? 26 : count <= 120 ? 20 : 14;
  return [
    { selector: "node", style: { width: size, height: size, "background-color": "data(color)", label: "data(label)", "font-size": size * 0.45, "text-valign": "center", color: "data(text)", "border-width": "data(border)", "border-color": "data(rim)", "border-style": "data(rimstyle)" } },
    { selector: "edge", style: { width: "data(width)", "line-color": "data(color)", "target-arrow-color": "data(color)", "target-arrow-shape": count <= 200 ? "triangle" : "none", "arrow-scale": 0.7, "curve-style": count <= 200 ? "bezier" : "haystack", "control-point-step-size": 18, opacity: "data(opacity)", "line-style": "data(dash)" } },
    { selector: ".chosen", style: { "border-width": 4, "z-index": 9 } },
  ];
}

function mark() {
  cy?.elements().removeClass("chosen");
  if (view.node !== null) cy?.getElementById(`n${view.node}`).addClass("chosen");
}

/** Color everything for the moment. @param {HTMLElement} legend */
function restyle(legend) {
  const { fleet } = view.data, ink = color("ink"), fail = color("fail"), died = new Set(fleet.died);
  const values = new Map(nodes().map((node) => [node, chosen.node === "phase" ? null : valueOf(chosen.node, node)]));
  const numbers = [...values.values()].filter((value) => value !== null).map(Number);
  const low = Math.min(...numbers), high = Math.max(...numbers);
  const traffic = linksNow(), strengths = [...traffic.values()].map(strength).filter((value) => value !== null).map(Number);
  const most = Math.max(0, ...strengths), round = ofRound() ? linksOfRound() : null;
  cy.batch(() => {
    cy.nodes().forEach((/** @type {any} */ each) => {
      const node = each.data("node"), value = values.get(node), phase = phaseOf(node).phase;
      const share = value === null || value === undefined ? null : high > low ? (Number(value) - low) / (high - low) : 1;
      const fill = chosen.node === "phase" ? color(new Map(PHASES).get(phase) ?? "line") : share === null ? color("line") : scale(share);
      const down = phase === "down" || (isEnd() && died.has(node));
      const server = node === fleet.server;
      each.data({ color: fill, text: share !== null && share > 0.55 && chosen.node !== "phase" ? "#000" : chosen.node === "phase" || share === null ? ink : "#fff", border: node === view.node ? 4 : down || server ? 3 : 0, rim: node === view.node ? ink : down ? fail : color("c1"), rimstyle: down ? "dashed" : "solid" });
    });
    cy.edges().forEach((/** @type {any} */ each) => {
      const link = traffic.get(`${each.data("src")}-${each.data("dst")}`), value = link ? strength(link) : null;
      const hidden = round !== null && !round.has(`${each.data("src")}-${each.data("dst")}`);
      const picked = view.link !== null && view.link[0] === each.data("src") && view.link[1] === each.data("dst");
      const bad = ["lost", "late", "fate"].includes(chosen.link) && value !== null && value > 0;
      const share = value === null || !most ? 0 : value / most;
      each.data({ color: picked ? ink : bad ? fail : !link ? color("line") : chosen.link === "nbytes" || chosen.link === "delay" ? scale(share) : color("soft"), width: picked ? 5 : bad ? 1.5 + 3 * share : chosen.link === "nbytes" || chosen.link === "delay" ? 1 + 3 * share : 1.2, opacity: hidden && !picked ? 0 : !link ? 0.35 : 0.85, dash: bad ? "dashed" : "solid" });
      each.style("events", hidden ? "no" : "yes");
    });
  });
  explain(legend, low, high, most);
}

/** Whether only the links of the moment's round are drawn. */
function ofRound() {
  return chosen.which === "round" && hasAllMessages() && view.data.links.src.length > 0;
}

/** @param {import("./model.js").Traffic} link @returns {number|null} */
function strength(link) {
  const over = Math.max(1, link.sent - (link.of.unfinished ?? 0));
  if (chosen.link === "lost") return (link.of.lost ?? 0) / over;
  if (chosen.link === "late") return (link.of.late ?? 0) / over;
  if (chosen.link === "nbytes") return link.nbytes;
  if (chosen.link === "delay") return quantile(link.delays, 0.5);
  return link.of.lost || link.of.undeliverable ? 1 : link.of.late || link.of.refused ? 0.5 : 0;
}

/** @param {HTMLElement} legend @param {number} low @param {number} high @param {number} most */
function explain(legend, low, high, most) {
  const of = colorings().find(([name]) => name === chosen.node), by = LINKS.find(([name]) => name === chosen.link);
  /** @type {Node[]} */
  const parts = [];
  if (chosen.node === "phase") parts.push(el("p", { class: "key" }, ...[["of0", "training"], ["of1", "waiting"], ["of2", "mixing"], ["of5", "paused"], ["ofbad", "down"]].map(([name, words]) => el("span", { class: name }, words))));
  else if (of && Number.isFinite(low)) {
    const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { "aria-hidden": true }));
    parts.push(el("span", {}, `${of[1]}: ${of[2](low)}`), canvas, el("span", {}, of[2](high)));
    requestAnimationFrame(() => { const { context, width } = fit(canvas, 11); for (let x = 0; x < width; x++) { context.fillStyle = scale(x / width); context.fillRect(x, 0, 1.5, 11); } });
  }
  if (by && chosen.link !== "fate") parts.push(el("span", {}, `links: ${by[1]}, at most ${by[2](most)}`));
  if (ofRound()) parts.push(el("span", {}, `links of round ${fleetRound()}`));
  if (view.data.fleet.died.length) parts.push(el("span", {}, "dashed rim: down or dead"));
  legend.replaceChildren(...parts);
}
