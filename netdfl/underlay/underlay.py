"""The underlay of one fleet: its core network, the sites of its nodes, and which of their links cross a core link."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from netdfl.core.types import Edge, NodeId
from netdfl.links.selectors import Block
from netdfl.underlay.routes import Routes
from netdfl.underlay.sites import CoreLink, CoreNetwork


@dataclass(frozen=True)
class Underlay:
    """The core network of a fleet, with the site of each node.

    Attributes:
        network: the core links.
        site_of: the site of each node.
        reroute_ns: the time after which routes are found again when a core link fails or returns; None: never.
    """

    network: CoreNetwork
    site_of: Mapping[NodeId, str]
    reroute_ns: int | None = None

    @cached_property
    def routes(self) -> Routes:
        """The routes while all core links are up."""
        return Routes(self.network)

    @cached_property
    def nodes_of(self) -> Mapping[str, frozenset[NodeId]]:
        """The nodes of each site that has nodes."""
        found: dict[str, set[NodeId]] = {}
        for node, site in self.site_of.items():
            found.setdefault(site, set()).add(node)
        return {site: frozenset(nodes) for site, nodes in found.items()}

    def check_reachable(self) -> None:
        """Raise ValueError, with two nodes and a remedy, unless every site with nodes reaches every other such site."""
        for src, those in sorted(self.nodes_of.items()):
            for dst, others in sorted(self.nodes_of.items()):
                if self.routes.way(src, dst) is None:
                    nodes = f"node {min(those)} on {src} can't reach node {min(others)} on {dst}"
                    raise ValueError(f"{nodes}: no core links lead there; add one, or place the nodes elsewhere")

    def routes_without(self, names: Collection[str]) -> Routes:
        """Return the routes while the core links with these names are down."""
        return Routes(self.network, [link for name in names for link in self.network.named(name)])

    def between(self, src: str, dst: str, routes: Routes | None = None) -> tuple[CoreLink, ...]:
        """Return the core links from site `src` to `dst`, in order.

        If `routes` is None, or has no path, they are the links of the path while all core links are up.
        """
        found = None if routes is None else routes.way(src, dst)
        return found or self.routes.way(src, dst) or ()

    def way(self, edge: Edge, routes: Routes | None = None) -> tuple[CoreLink, ...]:
        """Return the core links that messages of `edge` cross, in order; none between nodes of one site."""
        return self.between(self.site_of[edge[0]], self.site_of[edge[1]], routes)

    def crossing(self, text: str) -> tuple[Block, ...]:
        """Return the links of nodes whose messages cross the core link `text`. Raises ValueError for an unknown name.

        With rerouting, if none crosses it at first, these are all links of nodes, as some may cross it later.
        """
        everyone = frozenset(self.site_of)
        later = () if self.reroute_ns is None else (Block(everyone, everyone),)
        return self.over(self.network.named(text)) or later

    def over(self, links: Collection[CoreLink], routes: Routes | None = None) -> tuple[Block, ...]:
        """Return the links of nodes whose route crosses one of `links`, as a block for each site that sends.

        A block has the nodes of that site, and the nodes that they reach over such a route.
        """
        blocks, sites = [], sorted(self.nodes_of.items())
        for src, those in sites:
            crossing = [others for dst, others in sites if not set(links).isdisjoint(self.between(src, dst, routes))]
            if crossing:
                blocks.append(Block(those, frozenset().union(*crossing)))
        return tuple(blocks)
