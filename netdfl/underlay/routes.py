"""The routes between sites: shortest paths by latency, the same on every machine.

Of two paths with equal latency the one over fewer links is taken, and of these the one whose sites come first by name
where they first differ. Where links and delays are the same in both directions, the path back crosses the same links.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from netdfl.core.tables import lazy_module
from netdfl.underlay.sites import CoreLink, CoreNetwork

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = lazy_module("networkx")

_HOP_BITS = 20  # more links than any way has


class Routes:
    """The shortest path from each site to every other site, over the core links that are up."""

    def __init__(self, network: CoreNetwork, down: Collection[CoreLink] = ()) -> None:
        """Find paths over `network` without the links that are `down`."""
        up = [link for link in network.links.values() if link not in down]
        self._links = {(link.src, link.dst): link for link in up}
        self._next: dict[str, list[str]] = {}
        for src, dst in sorted(self._links):
            self._next.setdefault(src, []).append(dst)
        self._alike_both_ways = all(_alike(link, self._links.get((link.dst, link.src))) for link in up)
        self._left: dict[str, dict[str, int]] = {}
        self._ways: dict[tuple[str, str], tuple[CoreLink, ...] | None] = {}

    def way(self, src: str, dst: str) -> tuple[CoreLink, ...] | None:
        """Return the core links from `src` to `dst` in order, empty if both are one site; None if there is no path."""
        ends = (src, dst)
        if ends not in self._ways:
            self._ways[ends] = self._found(src, dst)
        return self._ways[ends]

    def _found(self, src: str, dst: str) -> tuple[CoreLink, ...] | None:
        if self._alike_both_ways and dst < src:
            there = self.way(dst, src)
            return None if there is None else tuple(self._links[link.dst, link.src] for link in reversed(there))
        left = self._left_to(dst)
        if src not in left and src != dst:
            return None
        way, at = [], src
        while at != dst:
            link = next(
                self._links[at, site]
                for site in self._next[at]
                if site in left and _cost(self._links[at, site]) + left[site] == left[at]
            )
            way.append(link)
            at = link.dst
        return tuple(way)

    def _left_to(self, dst: str) -> dict[str, int]:
        """Return the cost of the shortest path to `dst` from each site that reaches it.

        `_cost` is the cost of a link.
        """
        if dst not in self._left:
            backward: nx.DiGraph[str] = nx.DiGraph()
            backward.add_node(dst)
            backward.add_weighted_edges_from((b, a, _cost(link)) for (a, b), link in self._links.items())
            self._left[dst] = dict(nx.single_source_dijkstra_path_length(backward, dst))
        return self._left[dst]


def _cost(link: CoreLink) -> int:
    """Return the cost of a link: its latency in the high bits and a 1 in the low bits, which counts links."""
    return (link.figures.latency_ns << _HOP_BITS) + 1


def _alike(link: CoreLink, back: CoreLink | None) -> bool:
    return back is not None and back.figures.latency_ns == link.figures.latency_ns
