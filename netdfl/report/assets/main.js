// The page of one run: its data lie in it, or come from where it is served.
import { charts } from "./charts.js";
import { fleet } from "./fleet.js";
import { lanes } from "./lanes.js";
import { follow } from "./live.js";
import { take } from "./model.js";
import { more } from "./more.js";
import { stalls } from "./stalls.js";
import { tables } from "./tables.js";
import { timebar } from "./timebar.js";

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
const within = JSON.parse(document.getElementById("data")?.textContent || "null");
app.append(timebar(), stalls(), fleet(), charts(), lanes(), ...more());
tables();
if (within?.frame) take(within);
if (app.dataset.live) follow(app.dataset.live);
