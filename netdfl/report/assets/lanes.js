// Lanes: what each node did when, and, looked at closely, the messages between them.
import { choice, color, el, fit, key, onColors, seconds } from "./dom.js";
import { choose, goTo, isEnd, linksNow, nodes, now, on, placeOf, rounds, rowOf, view } from "./model.js";

const LANE = 20, LEFT = 62, MOST_LANES = 80, MOST_ARROWS = 500;
const span = { from: 0, to: 1, which: "all" };
const LOST = ["lost", "undeliverable"];

/** @returns {HTMLElement} */
export function lanes() {
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { class: "lanes", role: "img", "aria-label": "a lane for each node: when it trained, waited, mixed, was down; its waits are in the panel of each node" }));
  const said = el("p", { class: "hint" }), tools = el("div", { class: "tools" });
  const section = el("section", { id: "lanes" }, el("h2", {}, "Who did what when"), tools,
    key([["of0", "training"], ["of1", "waiting"], ["of2", "mixing, sending, anything else"], ["of5", "paused"], ["ofbad", "down; a message that did not arrive"], ["ofsoft", "in no round that it ended"]]),
    el("div", { class: "lanebox", tabindex: 0, role: "region", "aria-label": "lanes" }, canvas), said);
  const draw = () => { if (view.data && !section.hidden) said.textContent = paint(canvas); };
  let due = false;
  const soon = () => { if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); } };
  on(["data"], () => {
    section.hidden = view.data.frame.by_round || !view.data.by_node.ends;
    if (!document.getElementById("zoom")) [span.from, span.to] = [0, end()];
    span.to = Math.max(span.from + 1e-9, view.follow && span.from === 0 ? end() : Math.min(span.to, end()));
    tools.replaceChildren(
      choice("lanes", [["all", "all nodes"], ["near", "the chosen node and its neighbors"], ["stall", "nodes of stalls"]], span.which, (which) => { span.which = which; draw(); }),
      ...[["closer", 0.4], ["further", 2.5]].map(([words, factor]) => el("button", { id: words === "closer" ? "zoom" : null, click: () => { zoom(Number(factor), middle()); draw(); } }, String(words))),
      ...[["earlier", -0.5], ["later", 0.5]].map(([words, by]) => el("button", { click: () => { pan(Number(by)); draw(); } }, String(words))),
      el("button", { click: () => { [span.from, span.to] = [0, end()]; draw(); } }, "whole run"));
    soon();
  });
  on(["at", "chosen", "status"], soon);
  pointers(canvas, said, soon);
  onColors(draw);
  new ResizeObserver(soon).observe(section);
  return section;
}

function end() {
  const moments = view.data.frame.moments;
  return moments[moments.length - 1];
}

/** Around what one looks closer: the handle where it is in view, but at the end of the run the middle of what is drawn. */
function middle() {
  if (!isEnd() && now() >= span.from && now() <= span.to) return now();
  const { by_node, waits } = view.data, last = Math.max(0, ...by_node.ends.filter((/** @type {number|null} */ each) => each !== null), ...waits.until);
  return (Math.min(span.from, last) + Math.min(span.to, last)) / 2;
}

/** @param {number} factor @param {number} around */
function zoom(factor, around) {
  const width = Math.min(end(), (span.to - span.from) * factor), share = (around - span.from) / (span.to - span.from);
  span.from = Math.max(0, Math.min(end() - width, around - share * width));
  span.to = span.from + width;
}

/** @param {number} by */
function pan(by) {
  const width = span.to - span.from;
  span.from = Math.max(0, Math.min(end() - width, span.from + by * width));
  span.to = span.from + width;
}

/** The nodes that have a lane now. */
function shown() {
  let of = nodes();
  if (span.which === "near" && view.node !== null) {
    const near = new Set([view.node]);
    for (const link of linksNow().values()) { if (link.src === view.node) near.add(link.dst); if (link.dst === view.node) near.add(link.src); }
    of = of.filter((node) => near.has(node));
  } else if (span.which === "stall") {
    const inside = new Set(view.data.stalls.flatMap((/** @type {any} */ stall) => stall.nodes));
    of = of.filter((node) => inside.has(node));
  }
  if (of.length <= MOST_LANES) return of;
  const waited = new Map(), { waits } = view.data;
  for (let i = 0; i < waits.node.length; i++) waited.set(waits.node[i], (waited.get(waits.node[i]) ?? 0) + waits.until[i] - waits.since[i]);
  const longest = new Set([...of].sort((a, b) => (waited.get(b) ?? 0) - (waited.get(a) ?? 0)).slice(0, MOST_LANES));
  return of.filter((node) => longest.has(node));
}

/** @param {HTMLCanvasElement} canvas @returns {string} What the picture leaves out. */
function paint(canvas) {
  const of = shown(), { context, width } = fit(canvas, of.length * LANE + 22), { by_node, waits, outages, frame, bands } = view.data;
  const x = (/** @type {number} */ time) => LEFT + (width - LEFT - 4) * (time - span.from) / (span.to - span.from);
  const lane = new Map(of.map((node, i) => [node, i * LANE])), kept = rounds(), height = of.length * LANE;
  const bar = (/** @type {number} */ node, /** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ fill) => {
    const top = lane.get(node);
    if (top === undefined || to < span.from || from > span.to) return;
    const left = Math.max(LEFT, x(from)), right = Math.min(width - 4, x(to));
    context.fillStyle = fill;
    context.fillRect(left, top + 4, Math.max(0.6, right - left), LANE - 8);
  };
  const [training, waiting, mixing, paused, down, idle] = ["c0", "c1", "c2", "c5", "fail", "line"].map(color);
  for (const band of bands) if (band.kind === "partition") for (const [from, to] of band.spans) { context.fillStyle = color("parted"); context.fillRect(Math.max(LEFT, x(from)), 0, Math.max(0, Math.min(width, x(to ?? end())) - Math.max(LEFT, x(from))), height); }
  for (const node of of) {
    bar(node, 0, end(), idle);
    const row = /** @type {number} */ (rowOf(node));
    for (let place = 0; place < kept.length; place++) {
      const until = by_node.ends[row * kept.length + place], took = by_node.round_s?.[row * kept.length + place];
      if (until === null || took === null || took === undefined) continue;
      bar(node, until - took, until, mixing);
      bar(node, until - took, Math.min(until, until - took + (by_node.train_s?.[row * kept.length + place] ?? 0)), training);
    }
  }
  for (let i = 0; i < waits.node.length; i++) bar(waits.node[i], waits.since[i], waits.until[i], waiting);
  for (const stall of view.data.stalls) for (const [node, since] of Object.entries(stall.since)) bar(Number(node), Number(since), stall.until_s ?? (stall.over ? stall.found_s : end()), waiting);
  for (const outage of outages) bar(outage.node, outage.since, outage.until ?? end(), outage.why === "pause" ? paused : down);
  const hidden = arrows(context, lane, x);
  context.fillStyle = color("ink");
  context.font = "12px system-ui, sans-serif";
  for (const [node, top] of lane) { context.font = `${node === view.node ? "bold " : ""}12px system-ui, sans-serif`; context.fillText(`node ${node}`, 2, top + 14); }
  context.font = "11px system-ui, sans-serif";
  for (let i = 0; i <= 4; i++) { const time = span.from + i * (span.to - span.from) / 4; context.textAlign = i === 4 ? "right" : i ? "center" : "left"; context.fillText(seconds(time), x(time), height + 15); }
  context.textAlign = "left";
  if (now() >= span.from && now() <= span.to) { context.strokeStyle = color("ink"); context.setLineDash([4, 4]); context.beginPath(); context.moveTo(x(now()), 0); context.lineTo(x(now()), height); context.stroke(); context.setLineDash([]); }
  const left = frame.num_nodes - of.length;
  return [left > 0 && span.which === "all" ? `The ${of.length} nodes that waited longest have a lane.` : "", hidden, "A click sets the moment; a click on a name chooses the node. Drag to look closer."].filter(Boolean).join(" ");
}

/** Messages as arrows, where there are few enough to be told apart. @param {CanvasRenderingContext2D} context @param {Map<number, number>} lane @param {(time: number) => number} x */
function arrows(context, lane, x) {
  const { messages } = view.data;
  /** @type {number[]} */
  const inside = [];
  for (let i = 0; i < messages.src.length; i++) {
    if (messages.sent[i] > span.to) break;
    const until = messages.arrived[i] ?? messages.sent[i];
    if (until >= span.from && lane.has(messages.src[i]) && lane.has(messages.dst[i])) inside.push(i);
    if (inside.length > MOST_ARROWS) return "Messages are drawn when you look closer.";
  }
  for (const i of inside) {
    const from = /** @type {number} */ (lane.get(messages.src[i])) + LANE / 2, to = /** @type {number} */ (lane.get(messages.dst[i])) + LANE / 2;
    const lost = messages.arrived[i] === null || LOST.includes(messages.classes[messages.fate[i]]);
    const start = x(messages.sent[i]), tip = messages.arrived[i] === null ? start + 6 : x(messages.arrived[i]), drop = lost ? from + 0.55 * (to - from) : to;
    context.strokeStyle = context.fillStyle = color(lost ? "fail" : "ink");
    context.globalAlpha = 0.75;
    context.beginPath(); context.moveTo(start, from); context.lineTo(tip, drop); context.stroke();
    if (lost) { context.beginPath(); context.moveTo(tip - 4, drop - 4); context.lineTo(tip + 4, drop + 4); context.moveTo(tip + 4, drop - 4); context.lineTo(tip - 4, drop + 4); context.stroke(); } else { context.beginPath(); context.arc(tip, drop, 2.4, 0, 7); context.fill(); }
    context.globalAlpha = 1;
  }
  return messages.recorded ? `Of messages that were delivered: ${messages.recorded}.` : messages.every > 1 ? `One of ${messages.every} messages is kept.` : "";
}

/** @param {HTMLCanvasElement} canvas @param {HTMLElement} said @param {() => void} soon */
function pointers(canvas, said, soon) {
  const time = (/** @type {number} */ x) => span.from + (x - LEFT) / (canvas.clientWidth - LEFT - 4) * (span.to - span.from);
  let began = -1;
  canvas.addEventListener("pointerdown", (event) => { began = event.offsetX; });
  canvas.addEventListener("pointerup", (event) => {
    const node = shown()[Math.floor(event.offsetY / LANE)];
    if (event.offsetX < LEFT) { if (node !== undefined) choose(node); }
    else if (began >= LEFT && Math.abs(event.offsetX - began) > 8) { const ends = [time(began), time(event.offsetX)].sort((a, b) => a - b); [span.from, span.to] = [Math.max(0, ends[0]), Math.min(end(), ends[1])]; soon(); }
    else goTo(placeOf(time(event.offsetX)));
    began = -1;
  });
  canvas.addEventListener("pointermove", (event) => {
    const node = shown()[Math.floor(event.offsetY / LANE)], at = time(event.offsetX), { waits } = view.data;
    if (node === undefined || event.offsetX < LEFT) return;
    for (let i = 0; i < waits.node.length; i++) {
      if (waits.node[i] === node && waits.since[i] <= at && at <= waits.until[i]) {
        const missing = waits.missing[i].length ? `, in vain for ${waits.missing[i].join(", ")}` : "";
        said.textContent = `node ${node}, round ${waits.round[i]}: waited ${seconds(waits.until[i] - waits.since[i])} from ${seconds(waits.since[i])}${waits.last[i] === null ? "" : `, last for ${waits.last[i]}`}${missing}; it ended by: ${waits.ended[waits.how[i]]}`;
        return;
      }
    }
    said.textContent = `node ${node} at ${seconds(at)}`;
  });
}
