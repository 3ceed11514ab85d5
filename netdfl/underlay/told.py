"""Core links in worlds whose nodes emulate their own links: each node has a copy, and the supervisor divides the rates.

    node: offers ──▶ supervisor: max-min fair rates over all core links ──▶ node: the rate of each of its ways

Losses, delays and cuts act at the sender, by its own copy and by the same keyed random draws as in the simulated world.
Rates and routes are found by the supervisor, which knows all flows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from netdfl.core.rng import Streams
from netdfl.core.types import Edge, NodeId
from netdfl.links.rules.base import StageOutcome
from netdfl.links.rules.rate import Shape
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.sharing.capacity import PARTS, SharedLink
from netdfl.links.sharing.max_min import max_min
from netdfl.links.sharing.network import FairNetwork
from netdfl.links.sharing.told import CLOSE, advertised
from netdfl.links.sharing.ways import NO_FLOW, ToldWays
from netdfl.underlay.shared import SharedCore
from netdfl.underlay.sites import CoreLink
from netdfl.underlay.underlay import Underlay

MOST_BPS = 1 << 62
"""The largest rate in bit/s that is accepted from another process."""


class ToldCore(SharedCore):
    """A node's copy of the core links, in which the rate of each way over them is the one that the supervisor sent."""

    def __init__(self, underlay: Underlay, streams: Streams) -> None:
        """Begin with the underlay's configured link values, before any edge has a route."""
        super().__init__(underlay, streams)
        self.told = ToldWays()

    @override
    def _links(self, edge: Edge, crossed: Sequence[CoreLink]) -> tuple[SharedLink, ...]:
        if not crossed:
            return ()
        link = self.told.add(edge, SharedLink((5, *edge), Shape(None)))
        rates = [shared.capacity for shared in self.shared(edge) if shared.capacity is not None]
        link.be_whole(min(rates, default=None))
        return (link,)

    @override
    def apply(self, event: CompiledEvent, network: FairNetwork, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a change of core links or of routes; return the new times at which messages under way leave links."""
        outcomes = list(super().apply(event, network, now_ns))
        for edge, way in self._built.items():
            for link in self._links(edge, way.crossed):
                network.touch(link)
        return [*outcomes, *network.retimed(now_ns)]


@dataclass(eq=False, slots=True)
class _Offered:
    """A flow with the rate that its sender offers. Rates are in parts of a bit/s, as `PARTS` says.

    Attributes:
        offer: the rate that the sender offers.
        own: a link of this flow alone, whose capacity is the offer.
        links: `own`, and the core links that the flow crosses.
        rate: the rate that the flow was given.
    """

    offer: int
    own: SharedLink
    links: Sequence[SharedLink]
    rate: int | None = None


class CoreDivision:
    """The supervisor's division of the core links' rates among all flows, by the rates that senders offer."""

    def __init__(self, core: SharedCore, events: Sequence[CompiledEvent], num_nodes: int) -> None:
        """Begin without flows. Of `events`, only those that change core links or routes are used."""
        self._core, self._num_nodes, self._network = core, num_nodes, FairNetwork()
        self._events = [each for each in events if each.core and not each.blocks and each.at_ns is not None]
        self._offers: dict[Edge, int] = {}
        self._told: dict[Edge, int] = {}
        self.since_ns = 0

    @property
    def next_ns(self) -> int | None:
        """The time in ns of the next scheduled change; None if there is none."""
        return self._events[0].at_ns if self._events else None

    def go_on(self, now_ns: int) -> None:
        """Apply the scheduled changes that are due at `now_ns`."""
        while self._events and (self._events[0].at_ns or 0) <= now_ns:
            event = self._events.pop(0)
            self.since_ns = max(self.since_ns, event.at_ns or 0)
            self._core.apply(event, self._network, now_ns)

    def take(self, src: NodeId, offers_bps: Mapping[NodeId, int], since_ns: int = 0) -> None:
        """Record the rates in bit/s that node `src` offers by receiver, valid from `since_ns` on.

        `NO_FLOW` ends a flow.

        Raises ValueError, without any change, for an offer that no node of this fleet makes.
        """
        for dst, offer in offers_bps.items():
            if not 0 <= dst < self._num_nodes or dst == src or not NO_FLOW <= offer <= MOST_BPS:
                raise ValueError(f"node {src} offers {offer} bit/s to node {dst} over core links")
            if not self._core.shared((src, dst)):
                raise ValueError(f"node {src} offers a rate to node {dst}, but no core link lies between them")
        self.since_ns = max(self.since_ns, since_ns)
        for dst, offer in offers_bps.items():
            if offer == NO_FLOW:
                self._end((src, dst))
            else:
                self._offers[src, dst] = offer

    def forget(self, src: NodeId, at_ns: int) -> None:
        """Remove the flows of `src`, which ended at `at_ns`."""
        self.since_ns = max(self.since_ns, at_ns)
        for edge in [edge for edge in self._offers if edge[0] == src]:
            self._end(edge)

    def _end(self, edge: Edge) -> None:
        self._offers.pop(edge, None)
        self._told.pop(edge, None)

    def news(self) -> Mapping[NodeId, Mapping[NodeId, int]]:
        """Return the rates in bit/s that changed noticeably since the last call, by sender and receiver."""
        found: dict[NodeId, dict[NodeId, int]] = {}
        for (src, dst), rate in self._rates():
            before = self._told.get((src, dst), -1)
            if abs(rate - before) * CLOSE > before:
                found.setdefault(src, {})[dst] = self._told[src, dst] = rate
        return found

    def _rates(self) -> Iterator[tuple[Edge, int]]:
        """Yield the rate in bit/s that each flow may use at most.

        A flow that gets all that it offers may still grow, up to the fair rate of larger flows on each of its links.
        """
        flows = {edge: self._offered(number, edge) for number, edge in enumerate(sorted(self._offers))}
        limits = {link: link.capacity for flow in flows.values() for link in flow.links if link.capacity is not None}
        rates = max_min(flows.values(), limits | {flow.own: flow.offer for flow in flows.values()})
        crossing: dict[SharedLink, list[int]] = {}
        for flow in flows.values():
            for link in flow.links[1:]:
                crossing.setdefault(link, []).append(rates[flow])
        levels = {link: advertised(limits[link], found) for link, found in crossing.items() if link in limits}
        for edge, flow in flows.items():
            most = min((levels[link] for link in flow.links if link in levels), default=None)
            if most is not None:
                yield edge, max(rates[flow], most if rates[flow] >= flow.offer else 0) // PARTS

    def _offered(self, number: int, edge: Edge) -> _Offered:
        own = SharedLink((-1, number), Shape(None))
        return _Offered(self._offers[edge] * PARTS, own, (own, *self._core.shared(edge)))
