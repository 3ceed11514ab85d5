// The bar over the whole run: what the schedule did, what happened, and the handle that sets the moment of all else.
import { bytes, color, count, el, fit, keepClear, key, seconds } from "./dom.js";
import { end, FATES, fleetRound, goTo, goToShare, hasAllMessages, isEnd, linksNow, now, on, placeBefore, placeOf, view } from "./model.js";
import { openStall } from "./stalls.js";

const GRAVE = ["crash", "died", "not_finite"];

/** @returns {HTMLElement} */
export function timebar() {
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { "aria-hidden": true }));
  const handle = /** @type {HTMLInputElement} */ (el("input", { id: "handle", type: "range", min: 0, step: 1, "aria-label": "moment of the run", input: () => goTo(view.data.frame.moments[Number(handle.value)]) }));
  const words = el("output", { id: "moment", for: "handle" }), counts = el("span", { id: "counts" }), marks = el("div");
  const play = el("button", { click: () => playing(play) }, "play");
  const bar = el("div", { id: "bar", role: "region", "aria-label": "time" }, canvas, handle,
    el("div", { class: "row" }, play, words, counts), marks);
  const draw = () => {
    handle.max = String(view.data.frame.moments.length - 1);
    paint(canvas);
    marks.replaceChildren(legend());
    tell();
  };
  const tell = () => {
    handle.value = String(nearest());
    const { frame } = view.data;
    const begins = view.data.head.state === "running" && !view.data.counts.sent.some(Boolean);
    const said = begins ? "no round is over yet" : frame.by_round ? `${now()} of ${frame.num_rounds} rounds over` : `${seconds(now())}, round ${fleetRound()}`;
    words.textContent = said;
    handle.setAttribute("aria-valuetext", said);
    counts.textContent = countsNow();
  };
  canvas.addEventListener("click", (event) => clicked(canvas, event));
  on(["data"], draw);
  on(["at"], tell);
  new ResizeObserver(() => { keepClear(); if (view.data) paint(canvas); }).observe(bar);
  return bar;
}

/** The step of the handle that is nearest to the moment, which may lie between two of them. */
function nearest() {
  const { moments } = view.data.frame, before = placeBefore(now()), after = placeOf(now());
  return now() - moments[before] < moments[after] - now() ? before : after;
}

/** What was sent until now, and what became of it. */
function countsNow() {
  const { of, nbytes, sent, as_of } = countedUntil(), known = FATES.filter((name) => name !== "unfinished");
  const under_way = sent - known.reduce((sum, name) => sum + (of[name] ?? 0), 0);
  const told = [...known.filter((name) => of[name]).map((name) => `${count(of[name])} ${name}`), ...(under_way > 0 ? [`${count(under_way)} on their way`] : [])];
  return `${count(sent)} messages sent (${bytes(nbytes)})${told.length ? `: ${told.join(", ")}` : ""}${as_of}`;
}

/** Counts of messages until now. Between two steps of the handle they are counted where all messages are at hand. @returns {{sent: number, nbytes: number, of: Object<string, number>, as_of: string}} */
function countedUntil() {
  const { counts, frame } = view.data, place = placeBefore(now()), step = frame.moments[place];
  if (step === now() || !hasAllMessages()) {
    const of = Object.fromEntries(FATES.map((name) => [name, counts[name]?.[place] ?? 0]));
    return { sent: counts.sent[place], nbytes: counts.nbytes[place], of, as_of: step === now() ? "" : `, as of ${seconds(step)}` };
  }
  const found = { sent: 0, nbytes: 0, of: /** @type {Object<string, number>} */ ({}), as_of: "" };
  for (const link of linksNow().values()) {
    found.sent += link.sent;
    found.nbytes += link.nbytes;
    for (const [name, number] of Object.entries(link.of)) found.of[name] = (found.of[name] ?? 0) + number;
  }
  return found;
}

function legend() {
  const { bands, stalls, event_counts } = view.data;
  /** @type {[string, string][]} */
  const entries = bands.slice(0, 4).map((/** @type {any} */ band, /** @type {number} */ i) => [`of${i}`, band.name]);
  if (GRAVE.some((kind) => event_counts[kind])) entries.push(["ofbad", "a node crashed, died or diverged"]);
  if (stalls.length) entries.push(["of4", "◆ a stall: click it, or choose it below"]);
  return entries.length ? key(entries) : el("span");
}

/** @param {number} time @param {number} width */
function xOf(time, width) {
  return 8 + (width - 16) * time / (end() || 1);
}

/** @param {HTMLCanvasElement} canvas */
function paint(canvas) {
  const { context, width } = fit(canvas, 30), { bands, events, stalls, frame } = view.data;
  if (frame.by_round) { canvas.style.height = "0"; return; }
  const last = end(), height = Math.min(7, 20 / Math.max(1, Math.min(4, bands.length)));
  bands.slice(0, 4).forEach((/** @type {any} */ band, /** @type {number} */ i) => {
    context.fillStyle = color(`c${i}`);
    for (const [begin, end] of band.spans) context.fillRect(xOf(begin, width), i * height, Math.max(1.5, xOf(end ?? last, width) - xOf(begin, width)), height - 1);
  });
  for (const event of events) {
    if (event.kind === "training") continue;
    context.fillStyle = color(GRAVE.includes(event.kind) ? "fail" : "soft");
    context.fillRect(xOf(event.at_s, width), GRAVE.includes(event.kind) ? 16 : 22, 2, GRAVE.includes(event.kind) ? 14 : 8);
  }
  context.fillStyle = color("c4");
  for (const stall of stalls) diamond(context, xOf(stall.began_s, width), 21);
}

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y */
function diamond(context, x, y) {
  context.beginPath();
  context.moveTo(x, y - 8); context.lineTo(x + 7, y); context.lineTo(x, y + 8); context.lineTo(x - 7, y);
  context.closePath();
  context.fill();
}

/** @param {HTMLCanvasElement} canvas @param {MouseEvent} event */
function clicked(canvas, event) {
  const width = canvas.clientWidth, x = event.offsetX;
  const place = view.data.stalls.findIndex((/** @type {any} */ stall) => Math.abs(xOf(stall.began_s, width) - x) < 9);
  if (place >= 0) openStall(place);
  else goToShare((x - 8) / (width - 16));
}

/** @type {number|null} */
let timer = null;

/** @param {HTMLElement} button */
function playing(button) {
  if (timer !== null) { clearInterval(timer); timer = null; button.textContent = "play"; return; }
  if (isEnd()) goTo(0);
  button.textContent = "stop playing";
  timer = setInterval(() => {
    goTo(view.data.frame.moments[placeBefore(now()) + 1] ?? end());
    if (isEnd() && timer !== null) { clearInterval(timer); timer = null; button.textContent = "play"; }
  }, hasAllMessages() ? 100 : 200);
}
