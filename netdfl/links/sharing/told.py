"""Downlinks as senders know them from notices, in worlds where each node emulates its own links.

A sender knows the shares of its uplink and of its links' own rates. About a downlink it sends notices to the receiver:
when a message begins and ends to cross it, and how fast the message could go otherwise, its offer. The receiver answers
with the largest rate that each sender may use: equal parts of the downlink's rate, and the rest that some senders can't
use goes to the others. These rates converge to the max-min fair ones (A. Charny, D. Clark, R. Jain: Congestion control
with explicit rate indication, 1995).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

from netdfl.core.types import Edge, Kind, NodeId
from netdfl.links.rules.base import StageOutcome, Transit
from netdfl.links.rules.rate import Shape
from netdfl.links.sharing.capacity import PARTS, SharedLink, ShareTaker
from netdfl.links.sharing.flow import Flow
from netdfl.links.sharing.network import FairNetwork

CLOSE = 1000
"""A rate that has changed by less than one part in this number is not reported again."""
_MOST = 1 << 60
"""The rate in bit/s that a sender without a limit offers."""


class FlowNotice(NamedTuple):
    """A notice about the message that a sender sends over a downlink.

    Attributes:
        number: the number of the message on this edge; 0: the sender sends none.
        nbytes: its size in bytes.
        offer_bps: the rate in bit/s at which the sender could send it if the downlink did not limit it.
        since_ns: the time in ns after the fleet's start since when this holds. If none is sent any more, it may be
            later than now: the sender crashed, and messages that it had passed to the real transport are under way.
    """

    number: int
    nbytes: int = 0
    offer_bps: int = 0
    since_ns: int = 0


ENDED = FlowNotice(0)


class ToldLink(SharedLink):
    """A sender's model of a receiver's downlink, whose rate senders share, for the flows of one edge.

    `whole` has the downlink's undivided rate, which is the capacity until the receiver reports another one. `known` is
    the last notice sent to the receiver: which message crosses its downlink, and how fast it could be sent.
    """

    __slots__ = ("_begun", "_is_told", "_unit", "_waits", "known", "whole")

    def __init__(self, edge: Edge, whole: SharedLink, rank: int = 4, *, waits: bool = False) -> None:
        """Start with the whole rate of the downlink. `rank` orders this link among links with equal shares.

        With `waits`, no message leaves before a share of this link is known.
        """
        super().__init__((rank, *edge), Shape(None))
        self.whole, self._waits = whole, waits
        self.capacity = whole.capacity
        self.forget()

    def forget(self) -> None:
        """Forget the notices sent to the receiver, and number messages anew: it restarted, is gone, or got none yet."""
        self.known, self._unit, self._is_told = ENDED, None, False
        self._begun = 0

    @property
    @override
    def is_known(self) -> bool:
        return not self._waits or self._is_told or self.whole.capacity is None

    def go(self) -> None:
        """Let the present messages leave at the present capacity, although no notice has told the link's share."""
        self._is_told = True

    def news(self, since_ns: int = 0) -> FlowNotice | None:
        """Return a notice to the receiver of which message crosses the link, at which possible rate; None if unchanged.

        `since_ns` is the time since when that rate is possible. A message's first notice holds from the time at which
        its transfer began, the notice of an end from that end.
        """
        flow = next(iter(self.flows), None)
        if flow is None:
            self._unit, self.capacity, self._is_told = None, self.whole.capacity, False
            notice = ENDED._replace(since_ns=self.freed_ns)
        else:
            if flow.unit is not self._unit:
                self._begun, since_ns = self._begun + 1, flow.going_ns
            self._unit = flow.unit
            notice = FlowNotice(self._begun, flow.unit.nbytes, min(_MOST, _offer(flow, self) // PARTS), since_ns)
        known = self.known
        if notice[:2] == known[:2] and abs(notice.offer_bps - known.offer_bps) * CLOSE <= known.offer_bps:
            return None
        self.known = notice
        return notice

    def be_whole(self, capacity: int | None) -> None:
        """Set the link's undivided rate, in parts of a bit/s; None: unlimited.

        It becomes the capacity at once if no message crosses the link, or if it is unlimited.
        """
        self.whole.limit(capacity)
        if not self.flows or capacity is None:
            self.capacity = capacity

    def take_share(self, rate_bps: int, since_ns: int, network: FairNetwork) -> None:
        """Set the link's capacity to a rate that holds since `since_ns`, and mark it so that rates are recomputed."""
        if self.flows:
            self._is_told = True
            network.change_since(self, rate_bps * PARTS, since_ns)

    def end(self, since_ns: int) -> FlowNotice | None:
        """Return this link's last notice to the receiver; None if the receiver knows of no message.

        Messages that the node passed to the real transport before it crashed end when the last one leaves, which may
        be later than now; others end at `since_ns`.
        """
        known, self.known = self.known, ENDED
        if known.number == ENDED.number:
            return None
        return ENDED._replace(since_ns=since_ns if self.flows else self.freed_ns)

    def refused(self, number: int) -> Flow | None:
        """Return the flow whose message `number` the receiver refused for a full queue; None if it is not current."""
        return next(iter(self.flows), None) if number == self._begun else None


def _offer(flow: ShareTaker, besides: SharedLink) -> int:
    """Return the highest rate that the message of `flow` could use if the link `besides` did not limit it.

    The rate is an integer, in units of 1 / `PARTS` bit/s.
    """
    offers = [_MOST * PARTS]
    for link in flow.links:
        if link is not besides and link.capacity is not None:
            others = [_limit(other, link) for other in link.flows if other is not flow]
            offers.append(advertised(link.capacity, [*others, _MOST * PARTS]))
    return min(offers)


def _limit(flow: ShareTaker, besides: SharedLink) -> int:
    """Return an upper bound on the rate of `flow` in parts of a bit/s: its least equal share of links but `besides`."""
    limits = [
        link.capacity // len(link.flows) for link in flow.links if link is not besides and link.capacity is not None
    ]
    return min(limits, default=_MOST * PARTS)


class ToldDownlinks:
    """A node's models of the downlinks of the nodes to which it sends, by edge."""

    def __init__(self, network: FairNetwork) -> None:
        """Start without models of downlinks; `network` has the node's flows, whose rates follow from the models."""
        self._network = network
        self.links: dict[Edge, ToldLink] = {}

    def add(self, edge: Edge, whole: SharedLink) -> ToldLink:
        """Add and return a model of the downlink at the end of `edge`; `whole` has the downlink's undivided rate."""
        self.links[edge] = ToldLink(edge, whole)
        return self.links[edge]

    def share(self, edge: Edge, rate_bps: int, now_ns: int, since_ns: int) -> Sequence[StageOutcome]:
        """Apply the rate that the receiver allows messages on `edge` since `since_ns`; return the new departures."""
        if edge in self.links:
            self.links[edge].take_share(rate_bps, min(since_ns, now_ns), self._network)
        return self._network.retimed(now_ns)

    def refused(self, edge: Edge, number: int, now_ns: int) -> Sequence[StageOutcome]:
        """Drop message `number` on `edge`, because the downlink's queue is full; return the outcomes."""
        flow = self.links[edge].refused(number) if edge in self.links else None
        lost = [] if flow is None else list(flow.stage.refuse(flow, now_ns))
        return [*lost, *self._network.retimed(now_ns)]


def advertised(capacity: int, offers: Iterable[int]) -> int:
    """Return the largest rate of a flow if flows with the possible rates `offers` share `capacity` max-min fairly."""
    ascending, left = sorted(offers), capacity
    for place, offer in enumerate(ascending):
        share = left // (len(ascending) - place)
        if offer >= share:
            return share
        left -= offer
    return left + (ascending[-1] if ascending else 0)


@dataclass(slots=True, eq=False)
class _DownlinkSender:
    """The message of one sender that crosses a downlink now.

    Attributes:
        notice: the sender's last notice about it.
        unit: stands for the message in the downlink's queue.
        changed_ns: the first and the last change of shares of which the sender does not know yet, in ns; None: none.
        told: the rate in bit/s last sent to the sender, and the time in ns since when it holds; -1: none was sent yet.
    """

    notice: FlowNotice
    unit: Transit
    changed_ns: tuple[int, int] | None
    told: tuple[int, int] = (-1, 0)


class DownlinkShares:
    """A node's own downlink, and the senders whose messages cross it now, known by their notices."""

    def __init__(self, link: SharedLink) -> None:
        """Start without senders; `link` is the node's downlink."""
        self._link = link
        self._incoming: dict[NodeId, _DownlinkSender] = {}
        self._leaving_ns: dict[NodeId, int] = {}  # when the messages of a sender that crashed will have arrived

    @property
    def next_ns(self) -> int | None:
        """The time in ns at which the messages of a crashed sender leave the downlink; None: there is none."""
        return min(self._leaving_ns.values(), default=None)

    def keep(self, src: NodeId, until_ns: int) -> None:
        """Keep the message of `src`, a sender that crashes, and its share of the downlink until `until_ns`."""
        if src in self._incoming:
            self._leaving_ns[src] = until_ns

    def go_on(self, now_ns: int) -> None:
        """Free the shares of crashed senders whose messages have arrived by `now_ns`."""
        for src, at_ns in [each for each in self._leaving_ns.items() if each[1] <= now_ns]:
            self.take(src, ENDED._replace(since_ns=at_ns))

    def take(self, src: NodeId, notice: FlowNotice) -> bool:
        """Record the message that `src` sends now, by its notice; return whether the downlink's queue has room."""
        at_ns = notice.since_ns
        for each in self._incoming.values():
            first_ns, last_ns = each.changed_ns or (at_ns, at_ns)
            each.changed_ns = min(first_ns, at_ns), max(last_ns, at_ns)
        if self._leaving_ns.pop(src, None) is not None:
            self._remove(src)  # the message from before the sender's restart, after which numbers begin anew
        before = self._incoming.get(src)
        if before is not None and before.notice.number == notice.number:
            before.notice = notice
            return True
        self._remove(src)
        if notice.number == ENDED.number:
            return True
        if self._link.is_full(notice.nbytes):
            return False
        unit = Transit(src, src, Kind.DATA, notice.number, 0, 0, notice.nbytes)
        self._link.take(unit)
        self._incoming[src] = _DownlinkSender(notice, unit, (at_ns, at_ns))
        return True

    def forget(self, src: NodeId) -> None:
        """Remove `src`, which left the fleet, and its message, except if `keep` keeps the message for a time."""
        if src not in self._leaving_ns:
            self._remove(src)

    def _remove(self, src: NodeId) -> None:
        if src in self._incoming:
            self._link.release(self._incoming.pop(src).unit)

    def news(self, besides: Collection[NodeId] = (), since_ns: int = 0) -> Iterator[tuple[NodeId, int, int]]:
        """Yield each sender whose allowed rate has changed, with the rate in bit/s and the time since when it holds.

        Senders in `besides` are left out, and senders whose offer is below both the rate that they know and the new
        one: neither limits them. `since_ns` is when the downlink's own rate changed last. A sender's first rate, or a
        lower one, holds from the first change that it does not know; a higher one from the last such change. So all
        senders together hardly get more than the downlink's rate. A rate never holds from before the sender's last one.
        """
        capacity = self._link.capacity
        if capacity is None:
            return
        rate = advertised(capacity, (each.notice.offer_bps * PARTS for each in self._incoming.values())) // PARTS
        for src, each in list(self._incoming.items()):
            if src in besides or src in self._leaving_ns:
                continue
            before, before_ns = each.told
            first_ns, last_ns = each.changed_ns or (since_ns, since_ns)
            each.changed_ns = None
            matters = before < 0 or min(rate, before) < each.notice.offer_bps
            if matters and abs(rate - before) * CLOSE > before:
                at_ns = first_ns if before < 0 else max(since_ns, before_ns, last_ns if rate > before else first_ns)
                each.told = rate, at_ns
                yield src, rate, at_ns
