// One log of all nodes, searched by words, levels and node; where the page is served it asks for it.
import { choice, count, el } from "./dom.js";
import { on, view } from "./model.js";
import { keep, oneOf, state } from "./state.js";

const LEVELS = /** @type {[string, string][]} */ ([["", "all"], ["debug", "debug"], ["info", "info"], ["warning", "warning and worse"], ["error", "error and worse"]]);
const MOST = 500;
const ORDER = ["debug", "info", "warning", "error"];

/** The level that a line names; "info" where it names none. @param {string} text */
function levelOf(text) {
  const found = text.match(/\b(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b|^\s*(Traceback|\w*Error\b|\w*Warning\b)|^\s*([DIWEF])\d{4} /);
  const word = (found?.[1] ?? found?.[2] ?? found?.[3] ?? "").toLowerCase();
  if (word === "debug" || word === "d") return "debug";
  if (word.includes("warn") || word === "w") return "warning";
  return word && word !== "info" && word !== "i" ? "error" : "info";
}

/** @returns {HTMLElement} */
export function logs() {
  const live = document.getElementById("app")?.dataset.live;
  /** @type {[string, string][]} */
  let lines = [];
  const words = /** @type {HTMLInputElement} */ (el("input", { type: "search", id: "find-log", value: state().get("log") ?? "", input: () => { keep({ log: words.value }); draw(); } }));
  const tools = el("div", { class: "tools" }), said = el("p", { class: "hint", role: "status" }), place = el("pre", { tabindex: 0, id: "logs-text" });
  const section = el("section", { id: "logs", hidden: true }, el("h2", {}, "What the nodes printed"), tools, said, place);
  const names = () => [...new Set(lines.map(([whose]) => whose))];
  const fromAddress = () => ({ level: oneOf("level", LEVELS.map(([name]) => name)), node: oneOf("log_of", ["", ...names()]) });
  const draw = () => {
    const asked = fromAddress(), least = ORDER.indexOf(asked.level), wanted = words.value.toLowerCase();
    const found = lines.filter(([whose, text]) => (!asked.node || whose === asked.node) && (least < 0 || ORDER.indexOf(levelOf(text)) >= least) && `${whose}: ${text}`.toLowerCase().includes(wanted));
    said.textContent = `${count(found.length)} of ${count(lines.length)} lines${found.length > MOST ? `, the last ${MOST}` : ""}. A line that names no level counts as info.`;
    place.replaceChildren(...found.slice(-MOST).map(([whose, text]) => el("span", { class: `log ${levelOf(text)}` }, `${whose}: ${text}\n`)));
    place.hidden = !found.length;
  };
  const take = (/** @type {[string, string][]} */ found) => {
    lines = found;
    section.hidden = !lines.length;
    head();
    draw();
  };
  const set = (/** @type {Object<string, string>} */ what) => { keep(what); draw(); };
  const head = () => {
    const asked = fromAddress();
    tools.replaceChildren(el("label", {}, "with the words", words), choice("level", LEVELS, asked.level, (level) => set({ level })), choice("of", [["", "all nodes"], ...names().map((name) => /** @type {[string, string]} */ ([name, name]))], asked.node, (log_of) => set({ log_of })),
      ...(live ? [el("button", { click: ask }, "look again")] : []));
  };
  window.addEventListener("hashchange", () => { if (section.hidden) return; words.value = state().get("log") ?? ""; head(); draw(); });
  async function ask() {
    const answer = await fetch(`${live}logs`).catch(() => null);
    if (answer?.ok) take(await answer.json());
  }
  let first = true;
  on(["data"], () => {
    if (live) { if (first) { first = false; ask(); } return; }
    take(Object.entries(view.data.logs ?? {}).flatMap(([node, text]) => String(text).split("\n").filter(Boolean).map((line) => /** @type {[string, string]} */ ([`node ${node}`, line]))));
  });
  return section;
}
