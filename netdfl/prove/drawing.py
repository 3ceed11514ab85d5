"""The random draws of a scenario that a proof does not vary, so that other seeds may behave differently."""

from __future__ import annotations

from collections.abc import Iterator

from netdfl.scenario.build import build_network
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import SimulatedOptions

_RULES = {"loss": "loss", "duplicate": "duplicates", "corrupt": "damage", "reorder": "disorder"}
_FIXED = ("constant", "measured")
_DRAWING = ("random_k", "qsgd", "chain")


def is_drawn(scenario: Scenario) -> list[str]:
    """Return descriptions of the random draws in `scenario` that affect which messages are sent and when."""
    return list(dict.fromkeys(_drawn(scenario)))


def _drawn(scenario: Scenario) -> Iterator[str]:
    for entry in scenario.links.values():
        yield from (f"{what} on links" for key, what in _RULES.items() if getattr(entry, key, None) is not None)
        latency = getattr(entry, "latency", None)
        if latency is not None and getattr(latency, "kind", "constant") != "constant":
            yield "jitter of links"
    world = scenario.world
    if isinstance(world, SimulatedOptions) and (world.compute.kind not in _FIXED or world.stragglers is not None):
        yield "compute times"
    if build_network(scenario).varies:
        yield "the graph of each round, or who takes part"
    selection = getattr(scenario.topology, "selection", None)
    if (selection is not None and selection.kind != "all") or scenario.algorithm.traits.selects:
        yield "choices of receivers"
    if scenario.algorithm.traits.family == "bilateral":
        yield "the peers of pairwise exchanges"
    if scenario.compression is not None and scenario.compression.kind in _DRAWING:
        yield f"the draws of {scenario.compression.kind}"
    if any("random" in event or "churn" in event for event in scenario.events):
        yield "times of events"
