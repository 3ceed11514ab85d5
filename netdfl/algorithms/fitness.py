"""What an algorithm needs of its network beyond the kind of its matrix: checked when a scenario is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from netdfl.topology.network import Network
from netdfl.topology.pairing import halves, inside
from netdfl.topology.spectrum import smallest_eigenvalue

ROUNDS = 16
TOLERANCE = 1e-9


class Misfit(NamedTuple):
    """Why an algorithm's `parameter` does not go with a network, and what would."""

    parameter: str
    what: str
    remedy: str


Fits: TypeAlias = Callable[[Mapping[str, Any], Network, int], Iterator[Misfit]]
"""(parameters, network, number of rounds): every reason why they do not go together."""


def ole_is_stable(params: Mapping[str, Any], network: Network, num_rounds: int) -> Iterator[Misfit]:
    """Ole's beta is below (1 + l) / (1 - l), l the smallest eigenvalue of a static symmetric W."""
    if network.topology.time_varying or not network.graph(0).is_symmetric:
        return
    least = smallest_eigenvalue(network.weights(network.graph(0)))
    limit, beta = (1 + least) / (1 - least), params["beta"]
    if beta >= limit - TOLERANCE:
        yield Misfit(
            "beta",
            f"beta {beta:g} is at or beyond the limit of this graph, {limit:.4g} (the smallest eigenvalue of W is "
            f"{least:.4g}): without gradients the nodes would drift apart",
            f"take beta below {limit:.4g}, or lazy weights: topology.weights: {{kind: metropolis, lazy: true}}",
        )


def averages_exactly(params: Mapping[str, Any], network: Network, num_rounds: int) -> Iterator[Misfit]:
    """Every `every` rounds the matrix is the exact average."""
    every, n = params["every"], network.num_nodes
    for round in range(every - 1, min(num_rounds, every * ROUNDS), every):
        matrix = network.weights(network.graph(round))
        entries = np.append(matrix.on_edges, matrix.on_self)
        if matrix.graph.num_edges != n * (n - 1) or not np.allclose(entries, 1 / n, rtol=0, atol=TOLERANCE):
            what = f"the exact average is due in round {round}, and the graph of that round does not give it"
            yield Misfit("every", what, "use topology full, or by_round with every link in such rounds")
            return


def pairs_can_meet(params: Mapping[str, Any], network: Network, num_rounds: int) -> Iterator[Misfit]:
    """Links work both ways, and those inside a half are left out on purpose alone."""
    topology = network.topology
    for round in range(min(num_rounds, ROUNDS) if topology.time_varying else 1):
        graph = topology.graph(round)
        if not graph.is_symmetric:
            yield Misfit("name", "an exchange needs links in both directions", "use an undirected topology, or sgp")
            return
        wrong = inside(graph, halves(topology)) if params["bipartite"] and not params["leave_out"] else ()
        if wrong:
            (a, b), more = wrong[0], len(wrong) - 1
            others = f", nor do {more} more" if more else ""
            yield Misfit(
                "bipartite",
                f"the graph has no two halves: link {a}--{b} does not go from one to the other{others}",
                "set leave_out: true to leave such links out, bipartite: false to do without halves, or use "
                "another graph, like a ring of an even number of nodes",
            )
            return
