// Lanes on a canvas: bars for what each node did when, and, where few enough to be told apart, messages as arrows.
import { color, fit, seconds } from "./dom.js";

export const LANE = 20;
export const LEFT = 62;
const MOST_ARROWS = 500;
/** What colors mean. @type {[string, string][]} */
export const LANE_KEY = [["of0", "training"], ["of1", "waiting"], ["of2", "mixing, sending, anything else"], ["of5", "paused"], ["ofbad", "down; a message that did not arrive"], ["ofsoft", "in no round that it ended"]];

/** @typedef {{from: number, to: number}} Span the seconds that are in view */
/** @typedef {{src: number[], dst: number[], sent: number[], arrived: (number|null)[]}} Arrows */
/**
 * What is painted: a lane for each of the nodes, idle from 0 to `end`; bars (node, from, to, name of a color), later ones
 * above earlier ones; shades over all lanes; messages, and which are lost; the chosen node; the moment with a dashed line.
 * @typedef {{nodes: number[], end: number, bars: Iterable<[number, number, number, string]>, shades: [number, number][], messages: Arrows, lost: (i: number) => boolean, chosen: number|null, at: number|null}} Strips
 */

/** Paint lanes; returns whether there are too many messages to be drawn. @param {HTMLCanvasElement} canvas @param {Span} span @param {Strips} of */
export function paintStrips(canvas, span, of) {
  const height = of.nodes.length * LANE, { context, width } = fit(canvas, height + 22);
  const x = (/** @type {number} */ time) => LEFT + (width - LEFT - 4) * (time - span.from) / (span.to - span.from);
  const lane = new Map(of.nodes.map((node, i) => [node, i * LANE]));
  /** @type {Map<string, string>} */
  const colors = new Map();
  const fill = (/** @type {string} */ name) => { let found = colors.get(name); if (found === undefined) colors.set(name, found = color(name)); return found; };
  const bar = (/** @type {number} */ node, /** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ name) => {
    const top = lane.get(node);
    if (top === undefined || to < span.from || from > span.to) return;
    const left = Math.max(LEFT, x(from)), right = Math.min(width - 4, x(to));
    context.fillStyle = fill(name);
    context.fillRect(left, top + 4, Math.max(0.6, right - left), LANE - 8);
  };
  context.fillStyle = fill("parted");
  for (const [from, to] of of.shades) context.fillRect(Math.max(LEFT, x(from)), 0, Math.max(0, Math.min(width, x(to)) - Math.max(LEFT, x(from))), height);
  for (const node of of.nodes) bar(node, 0, of.end, "line");
  for (const each of of.bars) bar(...each);
  context.save();
  context.beginPath(); context.rect(LEFT, 0, width - LEFT, height); context.clip();
  const hidden = arrows(context, span, of, lane, x);
  context.restore();
  context.fillStyle = fill("ink");
  for (const [node, top] of lane) { context.font = `${node === of.chosen ? "bold " : ""}12px system-ui, sans-serif`; context.fillText(`node ${node}`, 2, top + 14); }
  context.font = "11px system-ui, sans-serif";
  for (let i = 0; i <= 4; i++) { const time = span.from + i * (span.to - span.from) / 4; context.textAlign = i === 4 ? "right" : i ? "center" : "left"; context.fillText(seconds(time), x(time), height + 15); }
  context.textAlign = "left";
  if (of.at !== null && of.at >= span.from && of.at <= span.to) { context.strokeStyle = fill("ink"); context.setLineDash([4, 4]); context.beginPath(); context.moveTo(x(of.at), 0); context.lineTo(x(of.at), height); context.stroke(); context.setLineDash([]); }
  return hidden;
}

/** @param {CanvasRenderingContext2D} context @param {Span} span @param {Strips} of @param {Map<number, number>} lane @param {(time: number) => number} x */
function arrows(context, span, of, lane, x) {
  const { messages } = of;
  /** @type {number[]} */
  const inside = [];
  for (let i = 0; i < messages.src.length; i++) {
    if (messages.sent[i] > span.to) break;
    const until = messages.arrived[i] ?? messages.sent[i];
    if (until >= span.from && lane.has(messages.src[i]) && lane.has(messages.dst[i])) inside.push(i);
    if (inside.length > MOST_ARROWS) return true;
  }
  for (const i of inside) {
    const from = /** @type {number} */ (lane.get(messages.src[i])) + LANE / 2, to = /** @type {number} */ (lane.get(messages.dst[i])) + LANE / 2;
    const lost = of.lost(i), arrived = messages.arrived[i];
    const start = x(messages.sent[i]), tip = arrived === null ? start + 6 : x(arrived), drop = lost ? from + 0.55 * (to - from) : to;
    context.strokeStyle = context.fillStyle = color(lost ? "fail" : "ink");
    context.globalAlpha = 0.75;
    context.beginPath(); context.moveTo(start, from); context.lineTo(tip, drop); context.stroke();
    if (lost) { context.beginPath(); context.moveTo(tip - 4, drop - 4); context.lineTo(tip + 4, drop + 4); context.moveTo(tip + 4, drop - 4); context.lineTo(tip - 4, drop + 4); context.stroke(); } else { context.beginPath(); context.arc(tip, drop, 2.4, 0, 7); context.fill(); }
    context.globalAlpha = 1;
  }
  return false;
}

/** Look closer or further at a span within limits. @param {Span} span @param {Span} limits @param {number} factor @param {number} around */
export function zoom(span, limits, factor, around) {
  const width = Math.min(limits.to - limits.from, (span.to - span.from) * factor), share = (around - span.from) / (span.to - span.from);
  span.from = Math.max(limits.from, Math.min(limits.to - width, around - share * width));
  span.to = span.from + width;
}

/** Look earlier or later by a share of what is in view. @param {Span} span @param {Span} limits @param {number} by */
export function pan(span, limits, by) {
  const width = span.to - span.from;
  span.from = Math.max(limits.from, Math.min(limits.to - width, span.from + by * width));
  span.to = span.from + width;
}
