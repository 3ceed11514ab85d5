"""Checks, when a scenario is loaded, that an algorithm's parameters suit the network and the number of rounds.

Whether the network has the kind of mixing matrix that the algorithm needs is checked elsewhere (`Entry.needs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from netdfl.core.types import Json
from netdfl.topology.network import Network
from netdfl.topology.selection import AllNeighbors, halves, inside
from netdfl.topology.spectrum import eigenvalues

T = TypeVar("T")
ROUNDS = 16
TOLERANCE = 1e-9
_AT_ONE = 1e-6


class Misfit(NamedTuple):
    """A reason why the value of an algorithm's `parameter` does not work in this scenario, with a remedy."""

    parameter: str
    what: str
    remedy: str


Fits: TypeAlias = Callable[[Mapping[str, object], Network, int], Iterator[Misfit]]
"""A function from (parameters, network, number of rounds) to all reasons why the parameters do not work there."""


Warns: TypeAlias = Callable[[Mapping[str, object], int], Iterator[str]]
"""A function from (parameters, number of rounds) to warnings, a sentence each, parameter first."""


def told(judge: Callable[..., Iterator[T]] | None, *given: object) -> list[T]:
    """Return the results of `judge`, an algorithm's `fits` or `warns`, for `given`; none if a parameter is missing.

    A user's own function can take the place of an algorithm in the catalog, but have other parameters.
    """
    try:
        return [] if judge is None else list(judge(*given))
    except KeyError:
        return []


def ole_is_stable(params: Json, network: Network, num_rounds: int) -> Iterator[Misfit]:
    """Check that OledFL's look-ahead factor beta is small enough for stability on a static mixing matrix W.

    The bound is the smallest (1 - |l|^2) / |1 - l|^2 over the eigenvalues l of W other than 1.
    """
    if network.topology.time_varying or not isinstance(network.selection, AllNeighbors):
        return
    found = eigenvalues(network.weights(network.graph(0)))
    others = found[np.abs(1 - found) > _AT_ONE]
    limits = (1 - np.abs(others) ** 2) / np.abs(1 - others) ** 2
    limit, beta = float(limits.min(initial=np.inf)), params["beta"]
    if beta >= limit - TOLERANCE:
        worst = complex(others[limits.argmin()])
        number = f"{worst:.4g}" if abs(worst.imag) > TOLERANCE else f"{worst.real:.4g}"
        yield Misfit(
            "beta",
            f"beta {beta:g} is at or beyond the limit of this graph, {limit:.4g} (W has the eigenvalue {number}): "
            "without gradients the nodes would drift apart",
            f"take beta below {limit:.4g}, or lazy weights: set lazy: true in topology.weights",
        )


def averages_exactly(params: Json, network: Network, num_rounds: int) -> Iterator[Misfit]:
    """Check that SlowMo's average, due every `every` rounds and at least once, is exact on these rounds' graphs."""
    every, n = params["every"], network.num_nodes
    if every > num_rounds:
        what = f"the exact average is due every {every} rounds, and the run has {num_rounds}"
        yield Misfit("every", what, f"give every of at most {num_rounds}, or more rounds")
    for round in range(every - 1, min(num_rounds, every * ROUNDS), every):
        matrix = network.weights(network.graph(round))
        entries = np.concatenate([matrix.on_edges, matrix.on_self])
        if matrix.graph.num_edges != n * (n - 1) or (np.abs(entries - 1 / n) > TOLERANCE).any():
            what = f"the exact average is due in round {round}, and the graph of that round does not give it"
            yield Misfit("every", what, "use topology full, or by_round with every link in such rounds")
            return


def one_optimizer(params: Json, network: Network, num_rounds: int) -> Iterator[Misfit]:
    """Check that a method's momentum is given only if its local optimizer is plain SGD."""
    if params["momentum"] and params["optimizer"].name != "sgd":
        other = params["optimizer"].name
        yield Misfit("momentum", f"momentum is plain SGD's, and optimizer is {other}", "leave one of them out")


def nesterov_acts(params: Mapping[str, object], num_rounds: int) -> Iterator[str]:
    """Warn if Nesterov's form is set without momentum."""
    if params["nesterov"] and not params["momentum"]:
        yield "algorithm.nesterov: it is a form of momentum, and momentum is 0: give momentum, like 0.9"


def slow_rounds(params: Json, num_rounds: int) -> Iterator[str]:
    """Warn if SlowMo's run ends without an exact average, or if it sets Nesterov's form without momentum."""
    if left := num_rounds % params["every"]:
        what = "the last round comes" if left == 1 else f"the last {left} rounds come"
        yield f"algorithm.every: {what} after the last exact average, so the nodes end with models of their own"
    yield from nesterov_acts(params, num_rounds)


def distils(params: Json, network: Network, num_rounds: int) -> Iterator[Misfit]:
    """Check that the warm-up gives two models of the server as many rounds apart as the distillation needs."""
    key = "distil_gap" if "distil_gap" in params else "distil_steps"
    gap, warmup = params[key], params["warmup_rounds"]
    if gap > warmup:
        what = f"warmup_rounds {warmup} gives no two models of the server that are {gap} rounds apart"
        yield Misfit(key, what, f"give {key} of at most {warmup}, or warmup_rounds of {gap} or more")


def never_distils(params: Json, num_rounds: int) -> Iterator[str]:
    """Warn if the warm-up lasts for the whole run, so that no synthetic example is ever distilled."""
    if (warmup := params["warmup_rounds"]) >= num_rounds:
        what = f"all {num_rounds} rounds are warm-up, synthetic examples act from round {warmup} on"
        yield f"algorithm.warmup_rounds: {what}"


def chooses(params: Json, network: Network, num_rounds: int) -> Iterator[Misfit]:
    """Check that choosing neighbors has an effect: in some round, some node has more out-neighbors than it chooses."""
    k, most = params["neighbors"], 0
    for round in range(0, num_rounds, network.topology.redraw_every or num_rounds):
        most = max(most, int(network.graph(round).out_degrees.max()))
        if most > k:
            return
    remedy = (f"give neighbors of at most {most - 1}, or " if most > 1 else "") + "use a denser graph"
    yield Misfit("neighbors", f"nothing is left to choose: no node has more than {most} out-neighbors", remedy)


def pairs_can_meet(params: Mapping[str, object], network: Network, num_rounds: int) -> Iterator[Misfit]:
    """Check that pairwise exchanges are possible: edges work both ways, and join the two halves or are left out."""
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
