"""What a scenario must satisfy beyond its schema: mistakes that only show between two of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from netdfl.core.errors import Problem
from netdfl.scenario.build import build_network, build_topology
from netdfl.scenario.document import Document, Path
from netdfl.scenario.schema import Scenario
from netdfl.scenario.tables import ALGORITHMS
from netdfl.topology.base import Topology
from netdfl.topology.network import Network
from netdfl.topology.weights import MixingMatrix

_ROUNDS = 4
_TOLERANCE = 1e-9

Check = Callable[[Scenario, Document], Iterable[Problem]]


def nodes_exist(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """Every node that is named exists."""
    named: list[tuple[Path, list[int]]] = [(("groups", name), nodes) for name, nodes in scenario.groups.items()]
    if isinstance(scenario.expect.died, list):
        named.append((("expect", "died"), scenario.expect.died))
    for path, nodes in named:
        for node in sorted({node for node in nodes if node >= scenario.num_nodes}):
            yield missing_node(document, path, node, scenario.num_nodes)


def missing_node(document: Document, path: Path, node: int, num_nodes: int, *, key: bool = False) -> Problem:
    """The problem of a node that does not exist."""
    return document.problem(
        path, f"node {node} does not exist", f"nodes are 0 to {num_nodes - 1}", "correct it, or raise nodes", key=key
    )


def server_and_star(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """A server algorithm runs on a star, and only it does."""
    name, graph = scenario.algorithm.kind, scenario.topology.kind
    if scenario.has_server and graph != "star":
        yield document.problem(
            ("topology", "kind"), f"{name} is a server algorithm", f"on {graph} there is no server", "use topology: star"
        )
    if not scenario.has_server and graph == "star":
        server = ", ".join(kind for kind, entry in ALGORITHMS.table().items() if entry.family == "server")
        yield document.problem(
            ("topology", "kind"),
            f"star is the graph of a server, and {name} has none",
            "",
            f"use another graph, or a server algorithm: {server}",
        )
    if not scenario.has_server and scenario.topology.participation != 1:
        yield document.problem(
            ("topology", "participation"),
            f"{name} has no server that could sample clients",
            "",
            "remove participation, or use `selection: random_k`",
            key=True,
        )


def graph_fits(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """The graph can be drawn, is connected, and its weights suit the algorithm."""
    if scenario.has_server != (scenario.topology.kind == "star"):
        return
    path: Path = ("topology", "kind")
    try:
        topology = build_topology(scenario)
        path = ("topology", "weights")
        network = build_network(scenario, topology)
    except (ValueError, OSError) as exc:
        yield document.problem(path, f"topology {scenario.topology.kind}: {exc}")
        return
    if not scenario.has_server:
        yield from _matrix_suits(scenario, document, topology, network)


def _matrix_suits(
    scenario: Scenario, document: Document, topology: Topology, network: Network
) -> Iterator[Problem]:
    needs = getattr(scenario.algorithm.entry, "needs", None)
    kind = _kind(network, range(min(_ROUNDS, scenario.rounds)) if topology.time_varying else range(1))
    if needs is None or kind in needs:
        return
    wanted = "doubly" if "doubly" in needs else min(needs)
    others = [name for name, entry in ALGORITHMS.table().items() if kind in entry.needs]
    given = f"{kind} stochastic" if kind != "none" else "neither row nor column stochastic"
    graph = scenario.topology.kind
    weights = scenario.topology.weights.kind
    yield document.problem(
        ("algorithm", "name"),
        f"{scenario.algorithm.kind} needs a {wanted} stochastic W; {graph} with {weights} weights gives a {given} one",
        "",
        f"use {' or '.join(others)}, or another topology" if others else "use other weights",
    )


def _kind(network: Network, rounds: range) -> str:
    rows = columns = True
    for round in rounds:
        matrix: MixingMatrix = network.weights(network.graph(round))
        graph = matrix.graph
        for sums, ends in (("rows", graph.dst), ("columns", graph.src)):
            total = matrix.on_self + np.bincount(ends, weights=matrix.on_edges, minlength=graph.num_nodes)
            even = bool(np.allclose(total, 1, rtol=0, atol=_TOLERANCE))
            rows, columns = (rows and even, columns) if sums == "rows" else (rows, columns and even)
    return "doubly" if rows and columns else "row" if rows else "column" if columns else "none"


def local_sample(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """No more local models are tested than there are."""
    local = scenario.evaluation.local
    if isinstance(local, int) and local > scenario.nodes:
        yield document.problem(
            ("evaluation", "local"), f"a sample of {local} local models", f"there are {scenario.nodes}", "use all"
        )


CHECKS: tuple[Check, ...] = (nodes_exist, server_and_star, graph_fits, local_sample)


def problems(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """Every mistake that the checks find."""
    for check in CHECKS:
        yield from check(scenario, document)
