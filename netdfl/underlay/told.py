"""Core links in worlds whose nodes emulate their own links: each node has a copy, and the supervisor divides the rates.

    node: offers ──▶ supervisor: max-min fair rates over all core links ──▶ node: the rate of each of its routes

Losses, delays and cuts act at the sender, by its own copy and by the same keyed random draws as in the simulated world.
Rates and routes are found by the supervisor, which knows all flows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from typing_extensions import override

from netdfl.core.control import CoreRate
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
from netdfl.underlay.offers import OfferHistory
from netdfl.underlay.shared import SharedCore
from netdfl.underlay.sites import CoreLink
from netdfl.underlay.underlay import Underlay

MOST_BPS = 1 << 62
"""The largest rate in bit/s that is accepted from another process."""
RECENT_NS = 2_000_000_000
"""How far back, in ns, rates are divided anew where a report comes late."""
MOST_KEPT = 16
"""How many rates of one flow are remembered from before the last change."""


class ToldCore(SharedCore):
    """A node's copy of the core links, in which each route over them has the rate that the supervisor sent for it."""

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
        own: a link that only this flow uses, whose capacity is the offer.
        links: `own`, and the core links that the flow crosses.
        rate: the rate that the flow was given.
    """

    offer: int
    own: SharedLink
    links: Sequence[SharedLink]
    rate: int | None = None


class CoreDivision:
    """The supervisor's division of the core links' rates among all flows, by the rates that senders offer.

    A report that comes late changes past rates: senders get all rates since then, each with the time of its start.
    """

    def __init__(self, core: SharedCore, events: Sequence[CompiledEvent], num_nodes: int) -> None:
        """Begin without flows. Of `events`, only those that change core links or routes are used."""
        self._core, self._num_nodes, self._network = core, num_nodes, FairNetwork()
        self._events = [each for each in events if each.core and not each.blocks and each.at_ns is not None]
        self._offers = OfferHistory()
        self._began_ns: dict[Edge, int] = {}
        self._leaving_ns: dict[Edge, int] = {}  # when the messages of a crashed node will have passed
        self._told: dict[Edge, Sequence[CoreRate]] = {}
        self._changed_ns: int | None = None  # the earliest change since the last division

    @property
    def next_ns(self) -> int | None:
        """The time in ns of the next scheduled change, or of the end of a crashed node's flow; None: there is none."""
        changes = [each.at_ns for each in self._events[:1] if each.at_ns is not None]
        return min([*changes, *self._leaving_ns.values()], default=None)

    def go_on(self, now_ns: int) -> None:
        """Apply the changes that are due at `now_ns`, and end crashed nodes' flows whose messages have passed."""
        self._offers.settle(now_ns - RECENT_NS)
        for edge, at_ns in [each for each in self._leaving_ns.items() if each[1] <= now_ns]:
            del self._leaving_ns[edge]
            self._say(edge, NO_FLOW, at_ns)
        while self._events and (self._events[0].at_ns or 0) <= now_ns:
            event = self._events.pop(0)
            self._offers.settle(event.at_ns or 0)
            self._change(event.at_ns or 0)
            self._core.apply(event, self._network, now_ns)

    def take(self, src: NodeId, offers: Sequence[CoreRate], now_ns: int) -> None:
        """Record the rates that node `src` offers, by receiver; offers for times after `now_ns` hold from `now_ns`.

        An end may be later: then the flow keeps its share until that time, even if its node has crashed.
        Raises ValueError, without any change, for an offer that no node of this fleet makes.
        """
        for dst, offer in ((each.dst, each.rate_bps) for each in offers):
            if not 0 <= dst < self._num_nodes or dst == src or not NO_FLOW <= offer <= MOST_BPS:
                raise ValueError(f"node {src} offers {offer} bit/s to node {dst} over core links")
            if not self._core.shared((src, dst)):
                raise ValueError(f"node {src} offers a rate to node {dst}, but no core link lies between them")
        for each in offers:
            edge = src, each.dst
            if each.rate_bps == NO_FLOW and each.since_ns > now_ns and edge in self._offers:
                self._leaving_ns[edge] = min(each.since_ns, MOST_BPS)
                continue
            if self._leaving_ns.pop(edge, None) is not None:
                self._say(edge, NO_FLOW, min(each.since_ns, now_ns))  # the flow from before the node's restart
            self._say(edge, each.rate_bps, min(each.since_ns, now_ns))

    def forget(self, src: NodeId, at_ns: int) -> None:
        """Remove the flows of `src`, which ended at `at_ns`, except those that have a later end."""
        for edge in [edge for edge in self._offers.edges if edge[0] == src and edge not in self._leaving_ns]:
            self._say(edge, NO_FLOW, at_ns)

    def _say(self, edge: Edge, offer_bps: int, since_ns: int) -> None:
        if edge not in self._offers:
            self._began_ns[edge] = since_ns
            self._told.pop(edge, None)
        self._change(self._offers.say(edge, offer_bps, since_ns))

    def _change(self, at_ns: int) -> None:
        self._changed_ns = at_ns if self._changed_ns is None else min(self._changed_ns, at_ns)

    def news(self) -> Mapping[NodeId, Sequence[CoreRate]]:
        """Return the rates that changed noticeably since the last call, by sender; each holds until the next one."""
        if self._changed_ns is None:
            return {}
        changed_ns, self._changed_ns = max(self._changed_ns, self._offers.floor_ns), None
        found: dict[NodeId, list[CoreRate]] = {}
        for edge, rates in self._divided(changed_ns).items():
            told = self._told.get(edge)
            if told is None:
                rates[0] = replace(rates[0], since_ns=min(rates[0].since_ns, self._began_ns[edge]))
            if edge in self._offers and edge not in self._leaving_ns and (told is None or _differs(told, rates)):
                found.setdefault(edge[0], []).extend(rates)
                recent = [each for each in told or () if each.since_ns < changed_ns]
                self._told[edge] = [*recent[-MOST_KEPT:], *rates]
        return found

    def _divided(self, since_ns: int) -> Mapping[Edge, list[CoreRate]]:
        """Divide all core links anew since `since_ns`; return the rates of each flow, each until the next one."""
        found: dict[Edge, list[CoreRate]] = {}
        begins = self._offers.begins(since_ns)
        for begin_ns, end_ns in zip(begins, [*begins[1:], None], strict=True):
            for edge, rate_bps in self._rates(self._offers.between(begin_ns, end_ns)):
                rates = found.setdefault(edge, [])
                if not rates or _moves(rates[-1].rate_bps, rate_bps):
                    rates.append(CoreRate(edge[1], rate_bps, begin_ns))
        return found

    def _rates(self, offers: Mapping[Edge, int]) -> Iterator[tuple[Edge, int]]:
        """Yield the rate in bit/s that each flow may use at most.

        A flow that gets all that it offers may still grow, up to the fair rate of larger flows on each of its links.
        """
        flows = {edge: self._offered(number, edge, offers[edge]) for number, edge in enumerate(sorted(offers))}
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

    def _offered(self, number: int, edge: Edge, offer_bps: int) -> _Offered:
        own = SharedLink((-1, number), Shape(None))
        return _Offered(offer_bps * PARTS, own, (own, *self._core.shared(edge)))


def _moves(before_bps: int, rate_bps: int) -> bool:
    """Return whether a rate has changed so much that its sender must learn the new one."""
    return abs(rate_bps - before_bps) * CLOSE > before_bps


def _differs(told: Sequence[CoreRate], rates: Sequence[CoreRate]) -> bool:
    """Return whether the rates that senders know, `told`, differ from `rates` at any time since `rates` begin."""
    first_ns = rates[0].since_ns
    for at_ns in {max(first_ns, each.since_ns) for each in (*told, *rates)}:
        before, now = (
            [each.rate_bps for each in known if each.since_ns <= at_ns][-1:] or [0] for known in (told, rates)
        )
        if _moves(before[0], now[0]):
            return True
    return False
