"""What a scenario asks for and would never get: said when it is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from netdfl.scenario.build import build_network, drawn
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.schemes import is_push

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
    if (network := drawn(build_network, scenario)) is None:
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
