"""What a scenario asks for and would never get: said when it is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from netdfl.core.errors import Problem
from netdfl.links.rules.loss import DropList, rounds_beyond
from netdfl.scenario.build import build_network, build_topology
from netdfl.scenario.loading.document import Document
from netdfl.scenario.model.links import block
from netdfl.scenario.model.parts import Part
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.schemes import is_push


def messages_exist(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """No link drops messages of rounds that the run does not have."""
    for selector, entry in block(scenario.links).items():
        loss = entry.get("loss")
        if not isinstance(loss, Part) or type(loss).function is not DropList:
            continue
        if what := rounds_beyond(loss.params["messages"], scenario.rounds):
            yield document.problem(("links", selector, "loss"), f"loss: {what}")


def selection_chooses(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """On a static graph some node has as many neighbors as it should choose."""
    selection = scenario.topology.selection
    k = selection.params.get("k")
    if scenario.has_server or not isinstance(k, int):
        return
    try:
        topology = build_topology(scenario)
    except (ValueError, OSError):
        return
    most = int(topology.graph(0).out_degrees.max())
    if not topology.time_varying and k > most:
        yield document.problem(
            ("topology", "selection", "k"),
            f"{selection.kind} of k = {k} neighbors would choose nothing: no node has more than {most}",
            "",
            f"give k from 1 to {most}, or use a denser graph",
        )


_ROUNDS = 8


def hardly_meant(scenario: Scenario) -> Iterator[str]:
    """What the algorithm would do in so many rounds, or after such crashes, and nobody asks for."""
    name, traits = scenario.algorithm.kind, scenario.algorithm.traits
    if traits.remembers and any(event.get("state") == "lost" for event in scenario.events):
        yield (
            f"a client that loses its state begins {name}'s corrections anew at 0, but the server keeps what it had "
            "added up of them: the fleet settles away from the optimum; use state: kept"
        )
    if traits.warns is not None:
        yield from traits.warns(scenario.algorithm.params, scenario.rounds)


def weights_stay_one(scenario: Scenario) -> Iterator[str]:
    """Push-sum on links that all work both ways, by weights under which it is plain gossip."""
    weights, name = scenario.topology.weights.kind, scenario.algorithm.kind
    if weights != "auto" or not is_push(scenario) or scenario.algorithm.traits.selects:
        return
    try:
        network = build_network(scenario)
    except (ValueError, OSError):
        return
    rounds = range(min(_ROUNDS, scenario.rounds) if network.topology.time_varying else 1)
    graphs = [network.graph(round) for round in rounds] if network.receivers_know else []
    if not graphs or not all(graph.is_symmetric for graph in graphs):
        return
    degrees = {int(degree) for graph in graphs for degree in graph.out_degrees}
    yield (
        f"topology.weights: all links of {scenario.topology.kind} work both ways, so auto is metropolis, w stays 1 and "
        f"{name} has nothing to de-bias"
        + ("; with column each node sends 1 / (1 + its out-degree)" if len(degrees) > 1 else "")
        + ("; nor would it with column, for all nodes have as many neighbors" if len(degrees) == 1 else "")
    )
