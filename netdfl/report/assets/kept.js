// The state of a run's page in its address: the moment, what is chosen, the opened stall, the opened row of the blame.
import { openBlame } from "./blame.js";
import { choose, goTo, now, on, view } from "./model.js";
import { openStall } from "./stalls.js";
import { keep, state } from "./state.js";

const LATER_MS = 250;

/** Take the state from the address when the first data come, and keep it there from then on. */
export function keepState() {
  let known = false;
  /** @type {number|undefined} */
  let due;
  on(["data"], () => { if (!known) { known = true; apply(); } });
  on(["chosen"], () => { if (known) keep({ node: view.node, link: view.link?.join("-") }); });
  // A handle that is moved changes many times a second, which browsers don't let an address do.
  on(["at"], () => { clearTimeout(due); due = setTimeout(() => keep({ at: view.follow ? null : now() }), LATER_MS); });
  window.addEventListener("hashchange", () => { if (known) apply(); });
}

function apply() {
  const of = state(), blamed = of.get("blame"), stall = of.get("stall"), at = of.get("at"), link = (of.get("link") ?? "").match(/^(\d+)-(\d+)$/), node = of.get("node");
  if (stall !== null && view.data.stalls[Number(stall)]) openStall(Number(stall));
  if (blamed !== null && view.data.blame) openBlame(Number(blamed), false);
  if (at !== null && Number.isFinite(Number(at))) goTo(Number(at));
  if (link) choose(null, [Number(link[1]), Number(link[2])]);
  else if (node !== null && Number(node) >= 0 && Number(node) < view.data.frame.num_nodes) choose(Number(node));
}
