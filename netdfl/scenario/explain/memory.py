"""The number of vectors of the model's size that a node keeps for compression."""

from __future__ import annotations

from netdfl.scenario.build import SERVER, is_static, scheme_of
from netdfl.scenario.model.schema import Scenario
from netdfl.topology.network import Network

_UNIONS = 256


def vectors_kept(scenario: Scenario, network: Network) -> int:
    """Return the largest number of model-sized vectors that a node keeps for compression until the run's end.

    Only the first 256 graphs are counted, so with more graphs the true number may be larger; `counts_all` says so.
    """
    scheme = scheme_of(scenario, network.topology)
    if scheme in SERVER:
        return {"plain": 0, "ef14": 2, "ef21": scenario.nodes + 1}[scheme]
    if scheme == "deepsqueeze":
        return 2
    if scheme == "unsafe":
        return 0
    sends, hears = _used(network, _draws(scenario, network)[:_UNIONS])
    if scheme == "edge":
        return max(len(sends[i]) + len(hears[i]) for i in range(network.num_nodes)) + 1
    return max(len(some) for some in hears) + 2


def counts_all(scenario: Scenario, network: Network, kept: int) -> bool:
    """Return whether no node can keep more vectors than `kept`, the result of `vectors_kept`."""
    if scheme_of(scenario, network.topology) != "edge":
        return True
    return len(_draws(scenario, network)) <= _UNIONS or kept == 2 * network.num_nodes - 1


def _draws(scenario: Scenario, network: Network) -> range:
    """Return the rounds whose graph may differ from the graph of the round before."""
    if is_static(scenario, network.topology):
        return range(1)
    return range(0, scenario.rounds, network.topology.redraw_every if scenario.topology.selection.kind == "all" else 1)


def _used(network: Network, rounds: range) -> tuple[list[set[int]], list[set[int]]]:
    """Return, for each node, the set of its receivers and the set of its senders over `rounds`."""
    sends: list[set[int]] = [set() for _ in range(network.num_nodes)]
    hears: list[set[int]] = [set() for _ in range(network.num_nodes)]
    for round in rounds:
        graph = network.graph(round)
        for node in range(network.num_nodes):
            sends[node].update(graph.out_neighbors(node))
            hears[node].update(graph.in_neighbors(node))
    return sends, hears
