"""Where a way to wait means nothing: for the algorithm, or on this graph."""

from __future__ import annotations

from collections.abc import Iterator

from netdfl.core.errors import Problem
from netdfl.scenario.build import build_topology
from netdfl.scenario.compression import is_push, is_static
from netdfl.scenario.document import Document
from netdfl.scenario.schema import Scenario

_OWN_EXCHANGE = ("choco_sgd", "delicoco", "qdfedavgm", "deepsqueeze", "dispfl")


def stale_acts(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """`stale` is written only where messages of earlier rounds are mixed by it."""
    found = _no_stale(scenario) if scenario.wait.stale else None
    if found is not None:
        yield document.problem(("wait", "stale"), found[0], "", found[1])


def _no_stale(scenario: Scenario) -> tuple[str, str] | None:
    """Why nothing stale can be mixed, and what to do; None where it can."""
    name, graph = scenario.algorithm.kind, scenario.topology.kind
    family = getattr(scenario.algorithm.entry, "family", "gossip")
    if family == "server":
        return f"{name} has a server, which averages the reports of one round", "remove stale, or use dpsgd or sgp"
    if family == "bilateral":
        return f"in {name} two nodes meet, and a reply moves its asker whenever it comes", "remove stale"
    if family == "overlap":
        return f"{name} adds what comes of earlier rounds by itself", "remove stale; tau bounds how late"
    if is_push(scenario):
        return f"a share that {name} sends is mass, and is mixed however late it comes", "remove stale"
    if scenario.compression is not None:
        return "stale is for whole vectors, and here they are compressed", "remove stale or compression"
    if name in _OWN_EXCHANGE:
        return f"stale is for whole vectors, and {name} sends something else", "remove stale, or use dpsgd"
    if name == "slowmo":
        return "slowmo needs the exact average of one round", "remove stale, or use dpsgd"
    if scenario.wait.on_missing == "undo":
        return "undo refuses a vector that comes late, and stale would mix it", "use on_missing: self"
    return _neighbors_change(scenario, graph)


def _neighbors_change(scenario: Scenario, graph: str) -> tuple[str, str] | None:
    try:
        topology = build_topology(scenario)
    except (ValueError, OSError):
        return None
    if is_static(scenario, topology):
        return None
    what = f"stale gossip mixes the newest vector of each neighbor, and on {graph} neighbors change"
    return what, "use a static graph, or push-sum, which mixes what comes late (sgp)"
