"""Overlays between silos and the delays of their links, by the assumptions of a paper.

O. Marfoq, C. Xu, G. Neglia, R. Vidal: Throughput-optimal topology design for cross-silo federated learning, NeurIPS
2020 (arXiv:2010.12229).

A message takes the path of least length over the lines of the network. Its latency is 4 ms plus 8.5 us for each
kilometer. A path of h lines has 1/h of a line's rate. The links of an overlay that leave or reach a silo share its
access link equally. The delay of a link is the time of a local step, plus the latency, plus the longest of three
transfers: on the path, out of the sender, into the receiver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from netdfl.core.tables import lazy_module
from netdfl.core.types import Edge
from netdfl.study.cycle_times.max_plus import cycle_time
from netdfl.study.cycle_times.silos import Silos

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = lazy_module("networkx")

SECOND = 10**9


@dataclass(frozen=True)
class Assumptions:
    """The sizes, rates and times that a study of silos assumes.

    The defaults are those of the paper's iNaturalist table: ResNet-18, lines of 1 Gbit/s, access links of 10 Gbit/s.

    Attributes:
        model_bits: the size of a model in bits.
        step_ns: the time of a local step.
        core_bps: the rate of a line in bit/s.
        access_bps: the rate of a silo's access link in bit/s.
        fixed_ns: the part of a latency that does not depend on the distance.
        km_ns: the latency of a kilometer.
    """

    model_bits: int = 44_961_717
    step_ns: int = 25_400_000
    core_bps: int = 10**9
    access_bps: int = 10**10
    fixed_ns: int = 4_000_000
    km_ns: float = 8500.0


class Way(NamedTuple):
    """The path between two silos: its latency in ns and its number of lines."""

    latency_ns: int
    lines: int


class Ways:
    """The paths between all silos of a network, and the delays of links that use them."""

    def __init__(self, silos: Silos, given: Assumptions) -> None:
        """Find the path of least length between each two silos, with the rates and times of `given`."""
        graph: Any = nx.Graph()
        graph.add_nodes_from(range(silos.num_sites))
        graph.add_weighted_edges_from((a, b, km) for (a, b), km in silos.km.items())
        self.given, self.num_silos = given, silos.num_sites
        self.between: dict[Edge, Way] = {}
        for src, (km_to, way_to) in nx.all_pairs_dijkstra(graph):
            for dst, way in way_to.items():
                if src != dst:
                    latency_ns = round(given.fixed_ns + given.km_ns * km_to[dst])
                    self.between[src, dst] = Way(latency_ns, len(way) - 1)

    def delays(self, edges: Iterable[Edge]) -> dict[Edge, int]:
        """Return the delay of each directed link of an overlay in ns."""
        links = list(edges)
        sent, heard = Counter(src for src, _ in links), Counter(dst for _, dst in links)
        return {(src, dst): self.delay((src, dst), sent[src], heard[dst]) for src, dst in links}

    def delay(self, edge: Edge, sent: int = 1, heard: int = 1) -> int:
        """Return the delay in ns of a link from one silo to another.

        The sender has `sent` outgoing links in all, and the receiver has `heard` incoming ones; these share an access
        link.
        """
        given, way = self.given, self.between[edge]
        parts = max(Fraction(max(sent, heard), given.access_bps), Fraction(way.lines, given.core_bps))
        return given.step_ns + way.latency_ns + round(given.model_bits * SECOND * parts)

    def complete(self) -> Any:
        """Return the complete graph of silos.

        The attribute `delay` of an edge is its delay in ns if it were the only link.
        """
        graph: Any = nx.Graph()
        for edge in combinations(range(self.num_silos), 2):
            graph.add_edge(*edge, delay=self.delay(edge))
        return graph


def both_ways(edges: Iterable[Edge]) -> list[Edge]:
    """Return each edge and its reverse."""
    return [link for a, b in edges for link in ((a, b), (b, a))]


CENTER = 0
"""The silo in the middle of a star. The paper takes the silo with the highest load centrality in the complete graph;
as no path there leads through a third silo, all are equal, and the first silo of the file is taken."""


def star(ways: Ways) -> list[Edge]:
    """Return the links of a star overlay: both directions between silo 0 and every other silo of the network.

    `ways` has the paths between all silos. Marfoq et al. take as center the silo with the highest load centrality in
    the complete graph of silos, where all are equal; so the first one is taken.
    """
    return both_ways((CENTER, node) for node in range(ways.num_silos) if node != CENTER)


def star_time(ways: Ways) -> Fraction:
    """Return the time in ns of a round over a star: models to the center, the average back, and one local step."""
    step = ways.given.step_ns
    return 2 * (cycle_time(ways.delays(star(ways))) - step) + step


def ring(ways: Ways) -> list[Edge]:
    """Return a short directed ring, found by Christofides' algorithm, in the direction with the lower cycle time."""
    tour = list(nx.approximation.christofides(ways.complete(), weight="delay"))
    there = list(pairwise(tour))
    back = [(b, a) for a, b in there]
    return min(there, back, key=lambda edges: cycle_time(ways.delays(edges)))


def delta_mbst(ways: Ways) -> list[Edge]:
    """Return the tree with the lowest cycle time among the trees that delta-Prim finds, over all values of delta.

    Delta-Prim grows a tree by the link with the least delay, with at most delta links at each node.
    """
    graph = ways.complete()
    delay = nx.to_numpy_array(graph, nodelist=range(ways.num_silos), weight="delay")
    best: tuple[Fraction, list[Edge]] | None = None
    for most in range(2, ways.num_silos):
        tree = _delta_prim(delay, most)
        found = cycle_time(ways.delays(both_ways(tree)))
        if best is None or found < best[0]:
            best = (found, both_ways(tree))
        if max(Counter(end for edge in tree for end in edge).values()) < most:
            break  # a larger delta gives the same tree
    assert best is not None
    return best[1]


def _delta_prim(delay: np.ndarray[Any, np.dtype[np.float64]], most: int) -> list[Edge]:
    inside, degree, tree = [0], Counter[int](), list[Edge]()
    while len(inside) < len(delay):
        free = [node for node in inside if degree[node] < most]
        outside = [node for node in range(len(delay)) if node not in inside]
        near, far = np.unravel_index(np.argmin(delay[np.ix_(free, outside)]), (len(free), len(outside)))
        edge = (free[int(near)], outside[int(far)])
        degree.update(edge)
        tree.append(edge)
        inside.append(edge[1])
    return tree


def matchings(edges: Iterable[Edge]) -> list[list[Edge]]:
    """Return the edges split into matchings by greedy coloring, which begins with the edges that meet most others."""
    graph: Any = nx.Graph(list(edges))
    colors = nx.greedy_color(nx.line_graph(graph), strategy="largest_first")
    found: dict[int, list[Edge]] = {}
    for (a, b), color in colors.items():
        found.setdefault(color, []).append((min(a, b), max(a, b)))
    return [sorted(found[color]) for color in sorted(found)]


def drawn_rounds(of: Sequence[Sequence[Edge]], num_rounds: int, share: float = 0.5, seed: int = 0) -> list[list[Edge]]:
    """Draw the edges of each round: each matching in `of` takes part with probability `share`, at least one per round.

    MATCHA (Wang et al. 2019) finds unequal probabilities by a semidefinite program; here they are equal.
    """
    rng, rounds = np.random.default_rng(seed), list[list[Edge]]()
    while len(rounds) < num_rounds:
        takes = rng.random(len(of)) < share
        if takes.any():
            rounds.append(sorted(edge for place in np.flatnonzero(takes).tolist() for edge in of[place]))
    return rounds


def mean_of_longest(ways: Ways, rounds: Sequence[Sequence[Edge]]) -> Fraction:
    """Return the mean over rounds of the longest delay in each, in ns, as if all silos began a round together."""
    return sum((Fraction(max(ways.delays(both_ways(edges)).values())) for edges in rounds), Fraction(0)) / len(rounds)
