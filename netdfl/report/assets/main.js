// The page of one run: its data lie in it, or come from where it is served.
import { blame } from "./blame.js";
import { charts } from "./charts.js";
import { el } from "./dom.js";
import { fleet } from "./fleet.js";
import { lanes } from "./lanes.js";
import { follow } from "./live.js";
import { logs } from "./logs.js";
import { on, take } from "./model.js";
import { more } from "./more.js";
import { resources } from "./resources.js";
import { keepState } from "./kept.js";
import { stalls } from "./stalls.js";
import { tables } from "./tables.js";
import { timebar } from "./timebar.js";
import { underlay } from "./underlay.js";

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
const within = JSON.parse(document.getElementById("data")?.textContent || "null");
app.hidden = true;  // until there is something to show
on(["data"], () => { app.hidden = false; });
app.append(timebar(), stalls(), fleet(), underlay(), charts(), lanes(), blame(), ...more(), resources(), logs());
tables();
if (within?.many && app.dataset.live) wayBack(app.dataset.live);
keepState();
if (within?.frame) take(within);
if (app.dataset.live) follow(app.dataset.live);

/** A link to the list of runs, as it was left. @param {string} address */
function wayBack(address) {
  const link = el("a", { class: "back", href: address.replace(/run\/[^/]+\/$/, "") }, "← all runs");
  try { link.setAttribute("href", link.getAttribute("href") + (sessionStorage.getItem("netdfl-list") ?? "")); } catch { /* a browser that keeps nothing: the list begins anew */ }
  document.querySelector("header")?.prepend(link);
}
