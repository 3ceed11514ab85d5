// The head and the tables of a run, made anew where a page is served; a written page has them already.
import { el, prose, table } from "./dom.js";
import { on, view } from "./model.js";

const TONES = ["pass", "done", "fail"];

/** Keep the head and the tables as the data say. */
export function tables() {
  let first = document.querySelector("#app[data-live='']") !== null;
  on(["data"], () => {
    if (first) { first = false; return; }
    const { head, sections, scenario } = view.data;
    document.title = `${head.title} – ${head.verdict}`;
    set("h1", head.title);
    set("#subtitle", head.subtitle);
    set("#footer", head.footer);
    const verdict = document.getElementById("verdict");
    if (verdict) {
      verdict.className = `verdict ${TONES.includes(head.verdict) ? head.verdict : "unknown"}`;
      verdict.replaceChildren(el("strong", {}, head.verdict), ...(head.reasons.length ? [el("ul", {}, ...head.reasons.map((/** @type {string} */ reason) => el("li", {}, ...prose(reason))))] : []));
    }
    document.getElementById("numbers")?.replaceChildren(...head.numbers.map((/** @type {string[]} */ [name, value, note]) => el("div", {}, el("dt", {}, name), el("dd", {}, value, ...(note ? [el("small", {}, note)] : [])))));
    const place = document.getElementById("sections"), open = new Set([...place?.querySelectorAll("details[open] > summary") ?? []].map((each) => each.textContent));
    place?.replaceChildren(...sections.map(section), el("section", {}, el("h2", {}, "The scenario"), fold("scenario.yaml, as it ran", el("pre", { tabindex: 0 }, scenario), open)));
    function section(/** @type {any} */ of) {
      return el("section", {}, el("h2", {}, of.title), of.lede ? el("p", {}, ...prose(of.lede)) : null, ...of.tables.map((/** @type {any} */ each) => each.folded ? fold(each.caption, table(each.head, each.rows, each.caption), open) : table(each.head, each.rows, each.caption)), ...of.pictures.map((/** @type {any} */ each) => el("figure", { class: "picture" }, el("img", { alt: each.words, src: each.source }), el("figcaption", {}, each.words))));
    }
  });
}

/** @param {string} words @param {Node} inside @param {Set<string|null>} open */
function fold(words, inside, open) {
  return el("details", { open: open.has(words) }, el("summary", {}, words), inside);
}

/** @param {string} selector @param {string} words */
function set(selector, words) {
  const place = document.querySelector(selector);
  if (place) place.textContent = words;
}
