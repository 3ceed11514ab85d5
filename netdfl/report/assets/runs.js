// The page of many runs: a list, page by page, with filters, columns and groups; what is ticked is compared.
import { beside, compare } from "./beside.js";
import { bytes, choice, count, el, figure, metric, percent, seconds, table } from "./dom.js";
import { repeatForm } from "./repeat.js";
import { keep, oneOf, state } from "./state.js";

const app = /** @type {HTMLElement} */ (document.getElementById("app")), address = app.dataset.live ?? "";
const write = JSON.parse(document.getElementById("data")?.textContent || "{}").write === true;
/** @typedef {[string, string, (v: any) => string]} Column */
const COLUMNS = /** @type {Column[]} */ ([["started", "date (UTC)", (text) => text.slice(0, 16)], ["name", "scenario", String], ["place", "where", String], ["verdict", "verdict", String], ["stalls", "stalls", count], ["world", "world", String], ["algorithm", "algorithm", String], ["nodes", "nodes", count], ["rounds", "rounds", count], ["seed", "seed", String], ["accuracy", "accuracy", percent], ["loss", "test loss", figure], ["error", "error", figure], ["nbytes", "sent", bytes], ["duration_s", "took", seconds], ["virtual_duration_s", "virtual time", seconds], ["state", "state", String], ["tags", "tags", (tags) => tags.join(", ")], ["note", "note", String], ["reasons", "why", (reasons) => reasons.join("; ")]]);
const LESS = ["name", "world", "nodes", "rounds", "reasons", "virtual_duration_s", "state"], MEANS = ["accuracy", "loss", "error", "nbytes", "duration_s", "virtual_duration_s"], LIVE_MS = 2000;
const LAST = ["tags", "note", "reasons"], TONES = ["pass", "done", "fail"], MOST_NAMED = 20;
/** @type {any} */
let known = null;
let asked = 0, formOf = "";
/** @type {number|undefined} */
let due;
/** @type {Set<string>} */
const chosen = new Set();
/** @type {Map<string, string>} */
const places = new Map();

const list = el("div", { id: "list" }), pager = el("div", { class: "tools" }), studies = el("section", { id: "studies" }), orders = el("div", { id: "orders", class: "tools" }), repeat = el("div", { id: "repeat" }), tools = el("div", { class: "tools" });
const search = /** @type {HTMLInputElement} */ (el("input", { type: "search", id: "filter", placeholder: "lr > 0.1 seed = 2 pass", input: () => { keep({ filter: search.value, skip: null }); load(); } }));
const said = el("p", { class: "hint", role: "status", id: "said" }), done = el("p", { class: "hint", role: "status", id: "done" });

start();

function start() {
  document.title = "Runs";
  const heading = document.querySelector("h1");
  if (heading) heading.textContent = "Runs";
  for (const id of ["verdict", "sections", "numbers", "footer"]) document.getElementById(id)?.remove();
  app.append(el("div", { class: "tools" }, el("label", { class: "wide" }, "only", search)), tools, said, orders, done, repeat, list, pager, beside, studies);
  from();
  window.addEventListener("hashchange", from);
  fetch(`${address}tables`).then((answer) => answer.json()).then((tables) => { if (tables.length) studies.replaceChildren(el("h2", {}, "Tables of sweeps and reproductions"), ...tables.map(study)); });
}

/** Take the state from the address. */
function from() {
  search.value = state().get("filter") ?? "";
  chosen.clear();
  for (const id of (state().get("runs") ?? "").split(",").filter(Boolean)) chosen.add(id);
  load().then(again);
  openForm();
}

/** The form for the run that the address names, where the server takes orders. */
function openForm() {
  const id = write ? state().get("repeat") ?? "" : "";
  if (id === formOf) return;
  formOf = id;
  repeat.replaceChildren();
  if (id) repeatForm(address, id, repeat, { done: (told) => { close(); load().then(() => { said.replaceChildren("Begun: ", link(told.id, told.place), "."); }); }, close });
}

function close() {
  keep({ repeat: null });
  openForm();
}

/** Ask for the page of the list that is wanted; an answer that another has overtaken is left. */
async function load() {
  const mine = ++asked, of = state();
  const wanted = new URLSearchParams(["filter", "sort", "order", "by", "archived", "skip", "columns"].flatMap((name) => of.get(name) ? [[name, of.get(name) ?? ""]] : []));
  const answer = await fetch(`${address}runs?${wanted}`).catch(() => null);
  if (mine !== asked) return;
  if (!answer?.ok) { said.textContent = answer ? await answer.text() : "Where the page came from is gone."; return; }
  known = await answer.json();
  for (const run of known.runs) places.set(run.id, run.place);
  draw();
}

function draw() {
  const number = known.by ? `${count(known.found)} ${known.found === 1 ? "group" : "groups"}` : `${count(known.found)} of ${count(known.total)} runs`;
  said.textContent = known.wrong || (known.total ? `${number}${known.archived ? `, ${count(known.archived)} archived` : ""}. ${known.hint ? `${known.hint} ` : ""}Tick runs to see their curves, and what differs between their scenarios.` : "There are no runs here yet: `netdfl run SCENARIO` makes one.");
  said.classList.toggle("wrong", Boolean(known.wrong));
  toolbar();
  list.replaceChildren(known.by ? groups() : rows());
  page();
  order();
  clearTimeout(due);
  if (known.runs.some((/** @type {any} */ run) => run.state === "running") && !document.hidden) due = setTimeout(load, LIVE_MS);
}

/** All columns that there are: those of every run, metrics, the keys in which runs differ, and those that were chosen. @returns {Column[]} */
function columns() {
  const given = COLUMNS.filter(([name]) => known.columns.includes(name)), metrics = known.metrics.map(metric);
  const asked_ = (state().get("columns") ?? "").split(",").filter((name) => name && ![...COLUMNS, ...metrics].some(([known_]) => known_ === name));
  const keys = [...new Set([...known.keys, ...asked_])].map((name) => /** @type {Column} */ ([name, name, String]));
  return [...given.filter(([name]) => !LAST.includes(name)), ...metrics, ...keys, ...given.filter(([name]) => LAST.includes(name))];
}

/** The columns that are shown; labels only where a run has some. @returns {Column[]} */
function shown() {
  const given = state().get("columns"), all = columns();
  if (given !== null) return all.filter(([name]) => given.split(",").includes(name));
  const filled = (/** @type {string} */ name) => known.runs.some((/** @type {any} */ run) => name === "stalls" ? run.stalls > 0 : !LAST.includes(name) || (name === "tags" ? tags(run) : run[name]).length > 0);
  return all.filter(([name]) => COLUMNS.some(([base]) => base === name) ? !LESS.includes(name) && filled(name) : known.usual_metrics.includes(name) || known.usual_keys.includes(name));
}

function toolbar() {
  if (tools.contains(document.activeElement) && tools.childElementCount) return;
  const further = state().get("columns") === null ? known.further_keys : [], all = columns(), used = new Set(shown().map(([name]) => name)), sort = state().get("sort") || "started", down = oneOf("order", ["down", "up"]) === "down";
  const names = all.map(([name, words]) => /** @type {[string, string]} */ ([name, words]));
  const box = ([name, words]) => el("label", {}, el("input", { type: "checkbox", checked: used.has(name), change: (/** @type {Event} */ event) => column(name, /** @type {HTMLInputElement} */ (event.target).checked) }), words);
  tools.replaceChildren(
    choice("order by", names.some(([name]) => name === sort) ? names : [[sort, sort], ...names], sort, (name) => go({ sort: name, skip: null })),
    el("button", { click: () => go({ order: down ? "up" : "down", skip: null }), "aria-label": down ? "the highest or newest first; turn around" : "the lowest or oldest first; turn around" }, down ? "▾" : "▴"),
    choice("group by", [["", "nothing"], ...(known.by && !names.some(([name]) => name === known.by) ? [/** @type {[string, string]} */ ([known.by, known.by])] : []), ...names.filter(([name]) => !["started", "place", "reasons", ...MEANS, ...known.metrics].includes(name))], known.by, (by) => go({ by, skip: null })),
    el("details", { class: "columns" }, el("summary", { id: "more-keys", title: further.join(", ") || null }, further.length ? `columns: +${further.length} more ${further.length === 1 ? "key differs" : "keys differ"}` : "columns"), el("div", { class: "tools" }, ...all.map(box), another(all), el("button", { click: () => go({ columns: null }) }, "the usual ones"))),
    ...(known.archived || state().get("archived") ? [el("label", {}, el("input", { type: "checkbox", id: "archived", checked: Boolean(state().get("archived")), change: () => go({ archived: state().get("archived") ? null : "yes", skip: null }) }), "archived too")] : []),
    el("button", { click: () => go({}) }, "look again"),
    el("button", { click: () => { for (const id of known.ids.slice(0, 60)) chosen.add(id); ticked(); } }, "compare all that fit"),
    el("button", { click: () => { chosen.clear(); ticked(); } }, "compare none"));
}

/** A box that names any key of the runs as a column, one in which they are all equal too. @param {Column[]} all */
function another(all) {
  const names = known.all_keys.filter((/** @type {string} */ name) => !all.some(([each]) => each === name));
  const input = /** @type {HTMLInputElement} */ (el("input", { type: "search", id: "another-key", list: "all-keys", change: () => { if (input.value.trim()) { const name = input.value.trim(); input.value = ""; column(name, true); } } }));
  return el("label", {}, "another key", input, el("datalist", { id: "all-keys" }, ...names.map((/** @type {string} */ name) => el("option", { value: name }))));
}

/** Change the state, and show it. @param {Object<string, string|number|null>} what */
function go(what) {
  keep(what);
  /** @type {HTMLElement|null} */ (document.activeElement)?.blur();
  load();
}

/** @param {string} name @param {boolean} on_ */
function column(name, on_) {
  const used = shown().map(([each]) => each).filter((each) => each !== name);
  keep({ columns: (on_ ? [...used, name] : used).join(",") || "place" });
  load();
}

function rows() {
  const used = shown(), sort = state().get("sort") || "started", down = oneOf("order", ["down", "up"]) === "down";
  const head = el("tr", {}, el("th", { scope: "col" }, "compare"), ...used.map(([name, words]) => el("th", { scope: "col", "aria-sort": sort !== name ? "none" : down ? "descending" : "ascending" },
    el("button", { click: () => { go({ sort: name, order: sort === name && down ? "up" : "down", skip: null }); } }, `${words}${sort !== name ? "" : down ? " ▾" : " ▴"}`))));
  const body = known.runs.map((/** @type {any} */ run) => el("tr", { class: run.archived ? "archived" : null }, el("td", { "data-label": "compare" }, tick(run)), ...used.map(([name, words, of]) => el("td", { "data-label": words, class: name === "place" ? "place" : name === "note" || name === "reasons" ? "long" : null }, cell(run, name, of)))));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "runs" }, el("table", { class: "cards" }, el("thead", {}, head), el("tbody", {}, ...body)));
}

/** @param {any} run @param {string} name @param {(v: any) => string} words @returns {string|Node} */
function cell(run, name, words) {
  if (name === "place") return link(run.id, run.place);
  if (name === "tags") return tags(run).join(", ") || "–";
  if (name === "stalls" && run.stalls > 0) return el("span", { class: "stalls", title: "stalls and deadlocks in the run" }, `◆ ${count(run.stalls)}`);
  if (name === "verdict") return el("span", { title: run.reasons.join("; ") || null }, mark(run.verdict), run.wrong ? `: ${run.wrong}` : "");
  const value = name in run ? run[name] : run.keys[name];
  return value === undefined || value === null || value.length === 0 ? "–" : words(value);
}

/** The tags that somebody gave; the names of its folders, which are tags too, stand in its place. @param {any} run @returns {string[]} */
function tags(run) {
  const folders = run.place.split("/").slice(0, -1);
  return run.tags.filter((/** @type {string} */ tag) => run.own_tags.includes(tag) || !folders.includes(tag));
}

/** @param {string} verdict */
function mark(verdict) {
  return el("strong", { class: `mark ${TONES.includes(verdict) ? verdict : "unknown"}` }, verdict);
}

function groups() {
  const means = [...COLUMNS.filter(([name]) => MEANS.includes(name)), ...known.metrics.map(metric)].filter(([name]) => known.groups.some((/** @type {any} */ group) => typeof group[name] === "number"));
  const asked_ = means.filter(([name]) => (state().get("columns") ?? "").split(",").includes(name)), used = asked_.length ? asked_ : means.filter(([name]) => MEANS.includes(name) || known.usual_metrics.includes(name));
  const body = known.groups.map((/** @type {any} */ group) => {
    const verdicts = Object.entries(group.verdicts).flatMap(([verdict, number], i) => [i ? ", " : "", `${number} `, mark(verdict)]);
    const cells = /** @type {[string, Node|string][]} */ ([[known.by, group.value === "–" ? "–" : el("button", { click: () => inside(group.value) }, group.value)], ["runs", count(group.runs)], ["verdicts", el("span", {}, ...verdicts)], ...used.map(([name, words, of]) => /** @type {[string, string]} */ ([`mean ${words}`, of(group[name])])),
      ["", el("button", { click: () => { for (const id of group.ids) chosen.add(id); ticked(); } }, group.runs > group.ids.length ? `compare ${group.ids.length} of them` : "compare them")]]);
    return el("tr", {}, ...cells.map(([label, inner]) => el("td", { "data-label": label }, inner)));
  });
  const head = [known.by, "runs", "verdicts", ...used.map(([, words]) => `mean ${words}`), ""];
  const differ = [...new Set(known.groups.flatMap((/** @type {any} */ group) => group.differ))], named = [...differ.slice(0, 12), ...(differ.length > 12 ? ["..."] : [])];
  return el("div", {}, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "groups of runs" }, el("table", { class: "cards" }, el("thead", {}, el("tr", {}, ...head.map((words) => el("th", { scope: "col" }, words)))), el("tbody", {}, ...body))),
    ...(named.length ? [el("p", { class: "hint" }, `each mean is over runs that may differ in ${named.join(", ")}`)] : []));
}

/** The runs of a group. @param {string} value */
function inside(value) {
  const quoted = /^[^\s,"'<>=!~][^\s,]*$/.test(value) ? value : value.includes('"') ? `'${value}'` : `"${value}"`;
  search.value = `${search.value} ${known.by} = ${quoted}`.trim();
  go({ filter: search.value, by: null, skip: null });
}

function page() {
  const skip = Number(state().get("skip") ?? 0), step = known.on_a_page, last = Math.min(skip + step, known.found);
  const button = (/** @type {string} */ words, /** @type {number} */ to, /** @type {boolean} */ off) => el("button", { disabled: off, click: () => { go({ skip: to || null }); list.scrollIntoView({ block: "start" }); } }, words);
  pager.replaceChildren(...(known.found > step ? [button(`the ${step} before`, Math.max(0, skip - step), skip <= 0), el("span", { id: "part" }, `${count(Math.min(skip + 1, known.found))} to ${count(last)} of ${count(known.found)}`), button(`the next ${step}`, skip + step, last >= known.found)] : []));
}

/** @param {any} run */
function tick(run) {
  return el("input", { type: "checkbox", "aria-label": `compare ${run.place}`, checked: chosen.has(run.id), change: () => { if (!chosen.delete(run.id)) chosen.add(run.id); ticked(); } });
}

/** What is ticked has changed. */
function ticked() {
  keep({ runs: [...chosen].slice(0, 60).join(",") });
  draw();
  again();
}

function again() {
  compare(address, [...chosen], link).then((told) => { for (const [id, place] of Object.entries(told)) places.set(id, place); order(); });
}

/** A link to a run, from which a way leads back to the list as it is now. @param {string} id @param {string} words */
function link(id, words) {
  return el("a", { href: `${address}run/${id}/`, click: () => { try { sessionStorage.setItem("netdfl-list", location.hash); } catch { /* a browser that keeps nothing: the list begins anew */ } } }, words);
}

/** The ticked runs that the list does not show, as it is filtered now. @returns {Set<string>} */
function unlisted() {
  const listed = new Set([...known.runs.map((/** @type {any} */ run) => run.id), ...known.groups.flatMap((/** @type {any} */ group) => group.ids)]);
  return new Set([...chosen].filter((id) => !listed.has(id)));
}

/** @param {number} number */
function runs(number) {
  return `${count(number)} ${number === 1 ? "run" : "runs"}`;
}

/** What can be done with the ticked runs, where the server takes orders. */
function order() {
  if (!write || !known) return;
  orders.hidden = !chosen.size;
  if (!orders.childElementCount) orders.replaceChildren(...ordering());
  const away = unlisted().size, some = away === chosen.size ? ", none of them shown" : `, ${count(away)} of them not shown`;
  orders.querySelector("#again")?.toggleAttribute("disabled", chosen.size !== 1);
  orders.querySelector("#untick")?.toggleAttribute("hidden", !away);
  const told = orders.querySelector("span");
  if (told) told.textContent = `${count(chosen.size)} ticked${away ? some : ""}:`;
}

/** @returns {HTMLElement[]} */
function ordering() {
  const tag = /** @type {HTMLInputElement} */ (el("input", { type: "text", id: "tag", size: 12, maxlength: 60 })), note = /** @type {HTMLInputElement} */ (el("input", { type: "text", id: "note", size: 18, maxlength: 4000 }));
  const label = (/** @type {string} */ words, /** @type {() => [any, string]} */ make, /** @type {HTMLInputElement|null} */ box = null) => el("button", { click: async () => { const [body, told] = make(); if (await each("labels", body, told) && box) box.value = ""; } }, words);
  const keepNote = async () => { if ((note.value.trim() || window.confirm(`Take the note of ${runs(chosen.size)} away?`)) && await each("labels", { note: note.value }, note.value.trim() ? "noted" : "without a note now")) note.value = ""; };
  return [el("span", {}), el("button", { id: "untick", click: () => { for (const id of unlisted()) chosen.delete(id); ticked(); } }, "untick those not shown"),
    el("label", {}, "tag", tag), label("add it", () => [{ add: [tag.value] }, `tagged “${tag.value.trim()}”`], tag), label("take it away", () => [{ remove: [tag.value] }, `without the tag “${tag.value.trim()}” now`], tag),
    el("label", {}, "note", note), el("button", { click: keepNote }, "keep it"), label("archive", () => [{ archived: true }, "archived"]), label("out of the archive", () => [{ archived: false }, "out of the archive"]),
    el("button", { id: "again", title: "of one ticked run", click: () => { keep({ repeat: [...chosen][0] }); openForm(); } }, "repeat with other values"),
    el("button", { class: "grave", click: () => { if (window.confirm(asking())) each("throw_away", null, "moved to the folder .trash"); } }, "throw away")];
}

/** What is asked before the ticked runs are thrown away: it names them. */
function asking() {
  const away = unlisted(), some = [...chosen].slice(0, MOST_NAMED).map((id) => `${places.get(id) ?? id}${away.has(id) ? " (not shown)" : ""}`);
  const hidden = away.size ? ` ${count(away.size)} of them ${away.size === 1 ? "is" : "are"} not shown.` : "", more = chosen.size > some.length ? [`and ${count(chosen.size - some.length)} more`] : [];
  return [`Throw ${runs(chosen.size)} away?${hidden} ${chosen.size === 1 ? "It is" : "They are"} moved to the folder .trash, and can be taken back from there.`, "", ...some, ...more].join("\n");
}

/** Give an order about each ticked run; say what was done, and what was refused. Runs that the list shows no more are ticked no more. @param {string} what @param {any} body @param {string} told @returns {Promise<boolean>} whether nothing was refused */
async function each(what, body, told) {
  const refused = [], before = unlisted(), made = [];
  done.textContent = "";
  for (const id of [...chosen]) {
    const answer = await fetch(`${address}run/${id}/${what}`, { method: "POST", body: body && JSON.stringify(body) }).catch(() => null);
    if (!answer?.ok) { refused.push(`${places.get(id) ?? id}: ${answer ? await answer.text() : "no answer"}`); continue; }
    made.push(places.get(id) ?? id);
    if (what === "throw_away") chosen.delete(id);
  }
  const number = chosen.size;
  await load();
  for (const id of unlisted()) if (!before.has(id)) chosen.delete(id);
  if (what === "throw_away" || chosen.size !== number) ticked();
  if (made.length) done.textContent = `${made.length > 3 ? runs(made.length) : made.join(", ")}: ${told}.`;
  if (refused.length) { said.textContent = refused.join("; "); said.classList.add("wrong"); }
  return !refused.length;
}

/** The table of a sweep or a reproduction; a row opens its runs. @param {any} of */
function study(of) {
  const open = (/** @type {string[]} */ ids) => { chosen.clear(); for (const id of ids) chosen.add(id); ticked(); beside.scrollIntoView(); };
  const body = of.rows.map((/** @type {string[]} */ row, /** @type {number} */ i) => {
    const ids = of.runs[i], cells = row.map((text) => text.length > 10 && Number.isFinite(Number(text)) ? figure(Number(text)) : text);
    return [...cells, ids.length === 1 ? link(ids[0], "open") : ids.length ? el("button", { click: () => open(ids) }, `its ${ids.length} runs`) : ""];
  });
  return el("details", {}, el("summary", {}, `${of.name}: ${count(of.rows.length)} rows`), table([...of.head, "runs"], body, `${of.name}${of.left_out ? `, without ${count(of.left_out)} more rows` : ""}`, "high"));
}
