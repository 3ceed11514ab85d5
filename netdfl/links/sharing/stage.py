"""The stage of one edge whose messages go one after another, each over all shared links of its path at once.

An edge has two flows, as two nodes have two connections: one for heartbeats and probes, one for all else. The first
message of a flow is transferred, the others wait. The link's state, loss and other own rules act on a message when its
first byte leaves. A lost one uses only the uplink; a duplicate follows its original over all links but the uplink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from netdfl.core.fates import QUEUE, RESET, FateReason
from netdfl.core.types import Edge, Kind, NodeId
from netdfl.links.rules.base import (
    DROPPED,
    Departure,
    Drop,
    Hold,
    LinkEvent,
    RoundValues,
    Stage,
    StageOutcome,
    Transit,
    resets,
)
from netdfl.links.rules.disorder import Duplicate
from netdfl.links.rules.rate import Shape
from netdfl.links.rules.state import LinkState
from netdfl.links.rules.tcp import on_the_line_bytes
from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.flow import Flow
from netdfl.links.sharing.network import FairNetwork

ASIDE = (Kind.HEARTBEAT, Kind.PROBE)
"""The kinds of messages that use a second connection between two nodes; all other kinds share the first one."""


class FairStage:
    """The shared links of one edge as one stage, which a message leaves when its last byte has passed all of them.

    Edges of one node that cross the same links may have one stage in common; each still has flows of its own.

    Attributes:
        links: the shared links; they begin with the sender's uplink unless `judges` is None.
        own: the one of `links` that stands for the rate of the link itself.
        judges: the link's own stages before its rate (state, loss ...), which act after the uplink; None: they are
            stages of the path before this one. What they lose crosses the uplink, and is dropped after this stage.
    """

    __slots__ = ("edge", "flows", "judges", "links", "network", "over_tcp", "own", "rounds", "stopped")

    def __init__(
        self,
        network: FairNetwork,
        edge: Edge,
        links: Sequence[SharedLink],
        own: SharedLink | None = None,
        rounds: RoundValues[tuple[float | None, float]] | None = None,
        judges: Sequence[Stage] | None = None,
        *,
        over_tcp: bool = False,
    ) -> None:
        """Let messages of `edge` cross `links`; for some rounds, `rounds` gives another rate of the link `own`.

        With `over_tcp`, the headers of packets count as bytes, and a message that leaves gets its mean rate as
        `share_bps`. `judges` are the link's own stages that act here, such as loss.
        """
        self.network, self.edge, self.links, self.own, self.rounds = network, edge, tuple(links), own, rounds
        self.judges = judges
        state = next((each for each in judges or () if isinstance(each, LinkState)), None)
        self.stopped = state is not None and state.state == "down_hold"
        self.flows: dict[tuple[NodeId, bool], Flow] = {}
        self.over_tcp = over_tcp

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        """Queue the message `unit` until its turn; drop it if the queue of the first link is full."""
        first = self.links[0]
        if self._is_full(first, unit):
            return (Drop(unit, QUEUE),)
        first.take(unit)
        place = _place(unit)
        flow = self.flows.get(place)
        if flow is None:
            flow = self.flows[place] = Flow(self)
        flow.waiting.append(unit)
        self.go_on(flow)
        return ()

    def left(self, unit: Transit, now_ns: int) -> None:
        """End the transfer of the message `unit` at `now_ns`, which may lie ahead of the network's other changes."""
        flow = self.flows[_place(unit)]
        flow.end_at(now_ns)
        self.network.ends(flow)
        if self.over_tcp:
            took_ns = now_ns - flow.began_ns
            unit.share_bps = 8e9 * self._line_bytes(unit) / took_ns if took_ns > 0 else 0.0

    def retimed(self, now_ns: int) -> Sequence[StageOutcome]:
        """Return the new departures of the whole network, computed once for all changes at this instant."""
        return self.network.retimed(now_ns)

    @property
    def again_ns(self) -> int | None:
        """The next instant at which rates change although no flow starts or ends; None: they do not."""
        return self.network.again_ns

    def waits(self, unit: Transit) -> bool:
        """Return whether the message `unit` still waits for earlier messages of its connection."""
        flow = self.flows.get(_place(unit))
        return flow is not None and unit is not flow.unit

    def withdraw(self, unit: Transit) -> None:
        """Remove the message `unit`, which was taken off the link."""
        flow = self.flows.get(_place(unit))
        if flow is None:
            return
        if unit is flow.unit:
            self.end(flow)
        elif unit in flow.waiting:
            flow.waiting.remove(unit)
            self._release(unit)

    # turns

    def go_on(self, flow: Flow) -> None:
        """Start the next message of `flow`, unless one is under way, or the link is down and holds its messages."""
        if flow.unit is None and flow.waiting and not self.stopped:
            self.network.starts(flow)

    def begin(self, flow: Flow, now_ns: int) -> Iterator[StageOutcome]:
        """Start the transfer of the next message of `flow`; yield outcomes if the message is lost or duplicated."""
        unit = flow.turn()
        over_uplink = self.judges is not None
        first = self.links[:1] if over_uplink and not unit.copy else ()
        behind = self.links[1:] if over_uplink else self.links
        reason, copy = self._judge(unit, now_ns) if self.judges else (None, None)
        if copy is not None:
            flow.waiting.appendleft(copy)
            yield Hold(copy)
        if reason is None and any(self._is_full(link, unit) for link in self.links[1:]):
            reason = QUEUE
        if reason is not None and not first:
            yield Drop(unit, reason)
            self.end(flow)
            return
        if reason is None:
            for link in self.links[1:]:
                link.take(unit)
            first = (*first, *self._of_round(unit, behind))
        else:
            unit.lost = reason
        flow.begin(first, self._line_bytes(unit), now_ns)
        self.network.crosses(flow)

    def _is_full(self, link: SharedLink, unit: Transit) -> bool:
        """Return whether the queue of `link` has no room for `unit`; a queue of packets loses no message over TCP."""
        return not self.over_tcp and link.is_full(unit.nbytes)

    def _line_bytes(self, unit: Transit) -> int:
        return on_the_line_bytes(unit.nbytes) if self.over_tcp else unit.nbytes

    def refuse(self, flow: Flow, now_ns: int) -> Iterator[StageOutcome]:
        """Drop the current message of `flow`, because a link after the uplink has a full queue."""
        unit = flow.unit
        if unit is None or flow.is_over(now_ns):
            return
        if self.judges is None or unit.copy:
            yield Drop(unit, QUEUE)
            self.end(flow)
            return
        unit.lost = QUEUE
        self.network.frees(flow)
        flow.links = self.links[:1]
        self.network.crosses(flow)

    def _judge(self, unit: Transit, now_ns: int) -> tuple[FateReason | None, Transit | None]:
        """Apply the link's own rules to `unit`; return the reason if it is lost, and its copy if it is duplicated.

        The copy meets only the rules after the one that made it.
        """
        copy, behind = None, not unit.copy
        for stage in self.judges or ():
            if isinstance(stage, Duplicate):
                if behind:
                    copy = next(iter(stage.copies(unit)[1:]), None)
                behind = True
            elif behind and stage.advance(unit, now_ns) == DROPPED:
                return stage.reason, None
        return None, copy

    def _of_round(self, unit: Transit, links: Sequence[SharedLink]) -> Sequence[SharedLink]:
        """Return `links`, with the link's own rate replaced where the schedule sets one for the round of `unit`."""
        piece = self.rounds.at(unit.of_round) if self.rounds is not None else None
        if piece is None or self.own is None:
            return links
        rate, scale = piece
        shape = Shape(rate) if rate is not None else Shape(self.own.shape.rate_bps)
        order = (*self.own.order, 1 + (unit.kind in ASIDE))
        alone = SharedLink(order, shape, scale if rate is not None else scale * self.own.scale)
        return [alone if link is self.own else link for link in links]

    def end(self, flow: Flow) -> None:
        """End the transfer of the current message of `flow`, and start the next one."""
        unit = flow.unit
        assert unit is not None
        self.network.frees(flow)
        self._release(unit)
        flow.drop()
        self.go_on(flow)
        if not flow.waiting:
            del self.flows[_place(unit)]

    def _release(self, unit: Transit) -> None:
        for link in self.links:
            link.release(unit)

    # changes

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Apply new rules: a state that holds messages stops the flows, a reset of the link drops their messages.

        Return the outcomes for messages in the stage.
        """
        outcomes: list[StageOutcome] = []
        for judge in self.judges or ():
            outcomes += judge.changed(event, now_ns)
        if self.own is not None and not event.keys().isdisjoint(("rate", "rate_scale")):
            self.network.change(self.own, event)
        if resets(event):
            outcomes += self._reset(now_ns)
        if "state" in event:
            outcomes += self._hold(event["state"] == "down_hold", now_ns)
        return [*outcomes, *self.network.retimed(now_ns)]

    def reroute(self, old: Sequence[SharedLink], new: Sequence[SharedLink], now_ns: int) -> None:
        """Replace the consecutive links `old` by `new`, also for messages under way.

        All shares are then computed again.
        """
        self.links = _instead(self.links, old, new)
        for flow in self.flows.values():
            units = [*flow.waiting] if flow.unit is None else [flow.unit, *flow.waiting]
            for link, unit in product(old, units):
                link.release(unit)
            if old[0] in flow.links and not flow.is_over(now_ns):
                crosses = flow in old[0].flows
                self.network.frees(flow)
                flow.links = _instead(flow.links, old, new)
                if crosses:
                    self.network.crosses(flow)

    def _reset(self, now_ns: int) -> Iterator[StageOutcome]:
        if self.own is not None:
            self.own.rest()
        for place, flow in list(self.flows.items()):
            units = list(flow.waiting)
            if flow.unit is not None and not flow.is_over(now_ns):
                units = [flow.unit, *units]
                self.network.frees(flow)
                flow.drop()
            for unit in units:
                self._release(unit)
                yield Drop(unit, RESET)
            flow.waiting.clear()
            if flow.unit is None:
                del self.flows[place]

    def _hold(self, stop: bool, now_ns: int) -> Iterator[StageOutcome]:
        stopped, self.stopped = self.stopped, stop
        for flow in list(self.flows.values()):
            if flow.unit is None:
                self.go_on(flow)
            elif flow.is_over(now_ns) or stop == stopped:
                continue
            elif stop:
                flow.stop(now_ns)
                self.network.frees(flow)
                yield Hold(flow.unit)
            else:
                flow.go_on(now_ns)
                self.network.crosses(flow)


def _place(unit: Transit) -> tuple[NodeId, bool]:
    """Return the key of a message's connection: its receiver, and whether it is the one for heartbeats and probes."""
    return unit.dst, unit.kind in ASIDE


def _instead(
    links: Sequence[SharedLink], old: Sequence[SharedLink], new: Sequence[SharedLink]
) -> tuple[SharedLink, ...]:
    place = links.index(old[0])
    return (*links[:place], *new, *links[place + len(old) :])


class LostOnes(Stage):
    """The stage after a `FairStage` that drops the messages which rules in that stage lost, each with its reason."""

    __slots__ = ()

    def enter(self, unit: Transit, now_ns: int) -> Sequence[StageOutcome]:
        """Drop the message `unit` if a rule of the stage before lost it, else pass it at once."""
        return (Departure(unit, now_ns),) if unit.lost is None else (Drop(unit, unit.lost),)
