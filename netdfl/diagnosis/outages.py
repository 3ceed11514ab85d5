"""Outages of links by the schedule: which edges are down when, and which event lost a message.

A diagnosis asks this about the past and the future, so it goes by the compiled schedule and not by the links
themselves. Links that are down may divide a fleet into sides; `divides` finds them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from netdfl.core.tables import lazy_module
from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis.snapshot import Snapshot
from netdfl.diagnosis.why import Divide
from netdfl.links.building import named_by
from netdfl.links.rules.base import Transit
from netdfl.links.rules.loss import DropList
from netdfl.links.schedule.active_changes import Overlays, effective_state
from netdfl.links.schedule.events import STANDING, CompiledEvent, is_relative
from netdfl.links.spec import LinkSpec, choose

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = lazy_module("networkx")


_MOST_LATER = 8
BY_LINKS = -1
"""A value in place of the number of an event that loses a message: the scenario's `links` lose it, not an event."""


class EdgeOutage(NamedTuple):
    """The state of an edge at a time: whether it is up or down, and until when.

    Attributes:
        up: whether the edge is up.
        heals_ns: when it will be up again; None: not known, or never.
        holds: whether it keeps messages until it is up again, instead of dropping them.
        event: the entry of the scenario's events that took it down last; None: the scenario's `links`.
    """

    up: bool = True
    heals_ns: int | None = None
    holds: bool = False
    event: int | None = None


class Outages:
    """The outages of links that the scenario's compiled events cause, past and future."""

    def __init__(
        self, events: Sequence[CompiledEvent], base: Callable[[Edge], LinkSpec] = lambda edge: LinkSpec()
    ) -> None:
        """Read the compiled `events`; `base` returns the link rules of an edge before any event.

        `core_links` are the names of core links that events cut, by the entry of the scenario's events. `joins` are
        the nodes that join late.
        """
        self._on_links = [e for e in events if e.acts_on_links]
        self._by_clock = [(e.at_ns, e) for e in self._on_links if e.at_ns is not None]
        self._drops = [e for e in events if e.action == "drop"]
        self._base = base
        self.core_links = {event.source: event.core for event in events if event.core and event.blocks}
        self.joins = frozenset(node for event in events if event.action == "join" for node in event.nodes)
        self._crashes: dict[NodeId, list[int]] = {}
        for at_ns, nodes in sorted((e.at_ns, e.nodes) for e in events if e.at_ns is not None and e.action == "crash"):
            for node in nodes:
                self._crashes.setdefault(node, []).append(at_ns)

    @property
    def scripted(self) -> bool:
        """Whether any event acts on links, or drops messages."""
        return bool(self._on_links or self._drops)

    def ends_ns(self, node: NodeId, now_ns: int) -> int | None:
        """Return when `node` will next crash by the clock; None if no event says so."""
        times = self._crashes.get(node, [])
        after = bisect_right(times, now_ns)
        return times[after] if after < len(times) else None

    def edge(self, edge: Edge, now_ns: int) -> EdgeOutage:
        """Return the state of `edge` at `now_ns` according to the schedule."""
        overlays = Overlays()
        state = base = self._base(edge).state
        holds = state == "down_hold"
        downs: dict[int, int] = {}
        for at_ns, event in self._by_clock:
            if at_ns > now_ns and state == "up":
                break
            if not any(edge in block for block in event.blocks):
                continue
            overlays.apply(event)
            state = effective_state(base, overlays.on_link(edge))
            if at_ns > now_ns and state == "up":
                return EdgeOutage(False, at_ns, holds, _last(downs))
            if at_ns <= now_ns:
                holds = state == "down_hold"
                _follow(downs, event)
        return EdgeOutage() if state == "up" else EdgeOutage(False, None, holds, _last(downs))

    def healed_ns(self, edge: Edge, after_ns: int, now_ns: int) -> int:
        """Return the last time from `after_ns` to `now_ns` at which `edge` came up; `after_ns` if it never did."""
        times = {at_ns for at_ns, _ in self._by_clock if after_ns < at_ns <= now_ns}
        up = (ns for ns in sorted(times, reverse=True) if self.edge(edge, ns).up and not self.edge(edge, ns - 1).up)
        return next(up, after_ns)

    def down_meanwhile(self, edge: Edge, sent_ns: int, now_ns: int) -> EdgeOutage | None:
        """Return the last outage from `sent_ns` to `now_ns` of `edge` or its opposite; None if both were up."""
        for way in (edge, edge[::-1]):
            for at_ns in (now_ns, self.healed_ns(way, sent_ns, now_ns) - 1):
                outage = self.edge(way, at_ns)
                if at_ns >= sent_ns and not outage.up:
                    return outage
        return None

    def loser(self, message: Transit, now_ns: int) -> int | None:
        """Return the event by which a link surely loses `message` if it is sent at `now_ns`.

        Return `BY_LINKS` if the scenario's `links` lose it, or None if it may arrive.
        """
        edge, round = (message.src, message.dst), message.round
        lost = {STANDING: BY_LINKS} if _is_certain(self._base(edge).loss, message) else {}
        for event in self._on_links:
            if not any(edge in block for block in event.blocks) or not _holds(event, round, now_ns):
                continue
            if not {"loss", "state"}.isdisjoint(event.parameters) or event.action == "unset":
                lost.pop(event.cause, None)
            if _loses(event, message):
                lost[event.cause] = event.source
        return next(reversed(lost.values()), None)

    def resetter(self, message: Transit, sent_ns: int) -> int | None:
        """Return the event that lost `message`, sent at `sent_ns`, by resetting its link; None if no event did."""
        lost = self.loser(message, sent_ns)
        if lost is not None:
            return lost
        edge = (message.src, message.dst)
        later = (e for at_ns, e in self._by_clock if at_ns > sent_ns and any(edge in block for block in e.blocks))
        resets = (e for e in later if e.action == "set" and e.parameters.get("state") == "down_reset")
        return next((event.source for event in resets), None)

    def dropper(self, message: Transit, now_ns: int) -> int | None:
        """Return the event that drops `message`, which it names, if it is sent at `now_ns`; None if no event does."""
        edge = (message.src, message.dst)
        meant = (e for e in self._drops if any(edge in block for block in e.blocks))
        return next((e.source for e in meant if named_by(e).matches(message, now_ns)), None)

    def passes_ns(self, copies: Sequence[Transit], now_ns: int) -> int | None:
        """Return the first time from `now_ns` on at which one of the messages `copies` could arrive; None: never."""
        later = (at_ns for at_ns, _ in self._by_clock if at_ns > now_ns)
        return next((ns for ns in (now_ns, *later) if not all(self.is_lost(copy, ns) for copy in copies)), None)

    def passes_for_good(self, message: Transit, since_ns: int) -> bool:
        """Return whether the schedule does not surely lose `message` whenever it is sent from `since_ns` on.

        False, too, where its link changes so often later that it is not looked at each time.
        """
        edge = (message.src, message.dst)
        changes = (
            at_ns for at_ns, e in self._by_clock if at_ns > since_ns and any(edge in block for block in e.blocks)
        )
        later = list(islice(changes, _MOST_LATER + 1))
        return len(later) <= _MOST_LATER and not any(self.is_lost(message, at_ns) for at_ns in (since_ns, *later))

    def is_lost(self, message: Transit, now_ns: int) -> bool:
        """Return whether `message` would certainly be lost if it were sent at `now_ns`."""
        return any(found is not None for found in (self.loser(message, now_ns), self.dropper(message, now_ns)))

    def will_lose(self, message: Transit) -> bool:
        """Return whether `message` will be lost whenever it is sent: by its round or name, or by the link's rules."""
        edge = (message.src, message.dst)
        if any(edge in block for event in self._on_links if event.at_ns is not None for block in event.blocks):
            return False  # events by the clock may end, or begin
        return self.loser(message, 0) is not None or any(
            event.at_ns is None and any(edge in block for block in event.blocks) and named_by(event).matches(message, 0)
            for event in self._drops
        )


def _follow(downs: dict[int, int], event: CompiledEvent) -> None:
    """Update `downs` (the events that keep a link down, by their cause) for the next event, which changes the link."""
    downs.pop(event.cause, None)
    if event.parameters.get("state", "up") != "up":
        downs[event.cause] = event.source


def _last(downs: dict[int, int]) -> int | None:
    return next(reversed(downs.values()), None)


def _holds(event: CompiledEvent, round: int, now_ns: int) -> bool:
    """Return whether an event acts on messages of `round` that are sent at `now_ns`.

    An event by the clock must have happened by then; one by rounds must act in that round.
    """
    return event.holds_in(round) if event.at_ns is None else event.at_ns <= now_ns


def _loses(event: CompiledEvent, message: Transit) -> bool:
    down = event.parameters.get("state") in ("down_drop", "down_reset")
    return down or _is_certain(event.parameters.get("loss"), message)


def _is_certain(loss: object, message: Transit) -> bool:
    """Return whether the link rule `loss` surely loses `message`: it names the message, or loses with probability 1."""
    if is_relative(loss):
        return False
    part = choose("loss", loss)
    if part is None:
        return False
    rule = part.build(0)
    return rule.lost(message) if isinstance(rule, DropList) else bool(getattr(rule, "probability", 0) >= 1)


def divides(snapshot: Snapshot, edges: Sequence[Edge]) -> Divide | None:
    """Return how `edges`, all down, divide the fleet into groups that can't reach each other; None if they don't."""
    one_way, sides = _one_way(snapshot, edges), _sides(snapshot, edges)
    if one_way:
        return Divide(tuple(edges), (tuple(sorted(one_way[0])), tuple(sorted(one_way[1]))), one_way=True)
    return Divide(tuple(edges), tuple(tuple(sorted(side)) for side in sides)) if sides else None


def _sides(snapshot: Snapshot, edges: Sequence[Edge]) -> list[set[NodeId]] | None:
    """Return the groups of nodes that the down `edges` separate, with no edge up between two groups.

    Return None if there are none.
    """
    graph: nx.Graph[NodeId] = nx.Graph()
    graph.add_nodes_from(snapshot.nodes)
    graph.add_edges_from(edge for edge, now in snapshot.edges.items() if now.up and edge not in edges)
    parts = [set(part) for part in nx.connected_components(graph)]
    place = {node: number for number, part in enumerate(parts) for node in part}
    if any(place[src] == place[dst] for src, dst in edges):
        return None
    ends = {place[node] for edge in edges for node in edge}
    return sorted((part for number, part in enumerate(parts) if number in ends), key=min)


def _one_way(snapshot: Snapshot, edges: Sequence[Edge]) -> tuple[set[NodeId], set[NodeId]] | None:
    """Return (senders, receivers) of `edges` if no node is both, and no other edge from a sender to a receiver is up.

    None otherwise.
    """
    sources, sinks = {src for src, _ in edges}, {dst for _, dst in edges}
    beside = [edge for edge, now in snapshot.edges.items() if now.up and edge not in edges]
    if not sources.isdisjoint(sinks) or any(src in sources and dst in sinks for src, dst in beside):
        return None
    return sources, sinks
