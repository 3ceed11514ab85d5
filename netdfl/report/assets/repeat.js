// A run again with other values: a field for each key of its scenario, and the modules that the run would execute.
import { count, el } from "./dom.js";

/** @typedef {{key: string, value: string, words?: string, choices?: string[], closed?: boolean, number?: boolean}} Field */
/** @typedef {{module: string, file: string}} Module */
const OPEN = ["algorithm", "top"];

/**
 * Show the form in `place`.
 * @param {string} address @param {string} id @param {HTMLElement} place
 * @param {{done: (told: {id: string, place: string}) => void, close: () => void}} then
 */
export async function repeatForm(address, id, place, then) {
  const answer = await fetch(`${address}run/${id}/form`).catch(() => null);
  if (!answer?.ok) { place.replaceChildren(el("p", { class: "wrong", role: "alert" }, answer ? await answer.text() : "Where the page came from is gone.")); return; }
  const told = await answer.json(), fields = /** @type {Field[]} */ (told.fields), lines = new Map(fields.map((field) => [field.key, line(field)]));
  const changed = () => Object.fromEntries([...lines.values()].filter((each) => each.input.value !== each.field.value).map((each) => [each.field.key, each.input.value]));
  const modules = el("div", { class: "modules" }), said = el("p", { role: "status", id: "repeat-said" }), agree = /** @type {HTMLInputElement} */ (el("input", { type: "checkbox", id: "agree" }));
  /** @type {Module[]} */
  let known = [];
  const show = (/** @type {Module[]} */ found) => {
    if (found.map((each) => each.module).join() !== known.map((each) => each.module).join()) agree.checked = false;
    known = found;
    modules.replaceChildren(...(known.length ? [el("p", {}, "Checking and running it executes:"), el("ul", {}, ...known.map((each) => el("li", {}, el("code", {}, each.module), ` from ${each.file}`))), el("label", {}, agree, " I know these modules, and let them run.")] : [el("p", {}, "It executes no modules but netdfl's own.")]));
  };
  show(told.modules);
  const ask = async (/** @type {string} */ what) => {
    for (const each of lines.values()) each.tell("");
    said.classList.remove("wrong");
    said.textContent = what === "check" ? "checking …" : "beginning …";
    buttons.forEach((each) => each.setAttribute("disabled", ""));
    const body = JSON.stringify({ values: changed(), agreed: agree.checked ? known.map((each) => each.module) : [] });
    const reply = await fetch(`${address}run/${id}/${what}`, { method: "POST", body }).catch(() => null);
    buttons.forEach((each) => each.removeAttribute("disabled"));
    if (!reply?.ok) { wrong(reply ? await reply.text() : "Where the page came from is gone."); return null; }
    return reply.json();
  };
  const wrong = (/** @type {string} */ text) => {
    const rest = text.split("\n").filter((each) => {
      const of = each.match(/^--set ([^=]+)=/), at = of && lines.get(of[1]);
      if (at) at.tell(each.slice(each.indexOf(": ", `--set ${of[1]}=${at.input.value}`.length) + 2));
      return !at;
    });
    said.textContent = rest.join("\n") || "Some values are wrong; see beside them.";
    said.classList.add("wrong");
    place.querySelector("[aria-invalid]")?.scrollIntoView({ block: "center" });
  };
  const check = async () => {
    const found = await ask("check");
    if (!found) return false;
    if (found.modules.length) show(found.modules);
    if (!found.agreed) { wrong("Agree first to the modules that it executes."); return false; }
    if (found.wrong) { wrong(found.wrong); return false; }
    said.textContent = "The values are valid.";
    return true;
  };
  const start = async () => {
    if (!await check()) return;
    const begun = await ask("repeat");
    if (begun) then.done(begun);
  };
  const buttons = [el("button", { id: "check-values", click: check }, "check the values"), el("button", { id: "begin", click: start }, "begin the run")];
  const search = /** @type {HTMLInputElement} */ (el("input", { type: "search", id: "find-key", placeholder: "lr", input: () => narrow() }));
  const groups = [...new Set(fields.map(groupOf))].map((name) => {
    const mine = [...lines.values()].filter((each) => groupOf(each.field) === name);
    return el("details", { open: OPEN.includes(name) }, el("summary", {}, name === "top" ? "the run" : name, el("span", { class: "soft" }, ` (${count(mine.length)})`)), ...mine.map((each) => each.row));
  });
  const narrow = () => {
    const words = search.value.toLowerCase();
    for (const each of lines.values()) each.row.hidden = !`${each.field.key} ${each.field.words ?? ""}`.toLowerCase().includes(words);
    groups.forEach((group) => { const some = group.querySelectorAll(".field:not([hidden])").length; group.hidden = !some; group.toggleAttribute("open", words ? some > 0 : OPEN.includes(group.querySelector("summary")?.textContent?.split(" (")[0].replace("the run", "top") ?? "")); });
  };
  place.replaceChildren(el("section", { class: "form", "aria-label": `repeat ${told.place}` }, el("h2", {}, `Repeat ${told.place} with other values`), el("p", { class: "hint" }, "Each key of its scenario as it ran. Values are YAML: 20ms, [1, 2], {kind: ring}. What you leave alone stays."),
    el("div", { class: "tools" }, el("label", { class: "wide" }, "find a key", search)), ...groups, modules, el("div", { class: "tools" }, ...buttons, el("button", { click: then.close }, "leave it")), said));
  search.focus();
}

/** @param {Field} field */
function groupOf(field) {
  return field.key.includes(".") ? field.key.split(".")[0] : "top";
}

/** A field with its label, words, and place for what is wrong. @param {Field} field */
function line(field) {
  const id = `key-${field.key.replace(/[^\w]/g, "-")}`, faults = el("p", { class: "wrong", id: `${id}-wrong`, hidden: true });
  const input = /** @type {HTMLInputElement|HTMLSelectElement} */ (field.closed && field.choices ? el("select", { id }, ...[...new Set([field.value, ...field.choices])].map((value) => el("option", { value, selected: value === field.value }, value)))
    : el("input", { type: "text", id, value: field.value, inputmode: field.number ? "decimal" : null, list: field.choices ? `${id}-list` : null, spellcheck: "false", autocomplete: "off" }));
  const row = el("div", { class: "field" }, el("label", { for: id }, field.key), input, field.choices && !field.closed ? el("datalist", { id: `${id}-list` }, ...field.choices.map((value) => el("option", { value }))) : null, field.words ? el("p", { class: "hint" }, field.words) : null, faults);
  input.addEventListener("input", () => { row.classList.toggle("changed", input.value !== field.value); });
  const tell = (/** @type {string} */ text) => {
    faults.textContent = text;
    faults.hidden = !text;
    input.toggleAttribute("aria-invalid", Boolean(text));
    if (text) { input.setAttribute("aria-invalid", "true"); input.setAttribute("aria-describedby", faults.id); row.closest("details")?.setAttribute("open", ""); }
  };
  return { field, row, input, tell };
}
