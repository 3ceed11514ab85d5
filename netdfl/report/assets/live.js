// A page that is served: what is new comes as events from where the page came from.
import { el } from "./dom.js";
import { changed, take, view } from "./model.js";

/** @param {string} address */
export function follow(address) {
  const said = el("p", { id: "live", class: "hint", role: "status" }, "waiting for the first figures");
  const stop = el("button", { id: "stop", hidden: true, click: () => ask(address, stop) }, "stop the run");
  document.getElementById("verdict")?.after(said, stop);
  const source = new EventSource(`${address}events`);
  source.addEventListener("data", (event) => {
    const sent = JSON.parse(event.data);
    if ((sent.head ?? view.data.head).state !== "running") view.status = null;
    take(view.data && sent.part ? { ...view.data, ...sent } : sent);
    const state = view.data.head.state;
    const troubles = view.data.troubles.length ? ` Not all could be read: ${view.data.troubles.join("; ")}` : "";
    said.textContent = (state === "running" ? followed(view.data.head.as_of) : state === "finished" ? "The run has ended; the page is complete." : "") + troubles;
  });
  source.addEventListener("status", (event) => {
    const status = JSON.parse(event.data);
    view.status = { ...status, nodes: Object.fromEntries(status.nodes.map((/** @type {any} */ node) => [node.node, node])) };
    stop.hidden = !status.can_stop;
    const judged = status.evaluation?.test_accuracy;
    document.getElementById("subtitle")?.replaceChildren(`${status.rounds_done} of ${status.rounds} rounds done${judged === null || judged === undefined ? "" : `, accuracy ${(100 * judged).toFixed(1)}%`}`);
    if (view.data) changed("status");
  });
  source.addEventListener("trouble", (event) => { said.textContent = JSON.parse(event.data); });
  source.addEventListener("end", () => { source.close(); stop.hidden = true; });
  source.onerror = () => { if (source.readyState === EventSource.CLOSED) said.textContent = "Where the page came from is gone; it shows what it had."; };
}

/** The headline is new each second; what takes longer to read says of what moment it is. @param {string} [asOf] */
function followed(asOf) {
  return `The page follows the run.${asOf ? ` Time, messages and curves are as of ${asOf}.` : ""}`;
}

/** @param {string} address @param {HTMLElement} button */
async function ask(address, button) {
  if (!window.confirm("End the run now? What it recorded is kept and judged.")) return;
  const answer = await fetch(`${address}stop`, { method: "POST" });
  button.textContent = answer.ok ? "the run was asked to stop" : await answer.text();
}
