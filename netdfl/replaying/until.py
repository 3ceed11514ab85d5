"""The moments at which a replay can stop: a time, a round, a message's fate, a crash, a stall, the end of the run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from netdfl.core.errors import InputError, expect, is_whole
from netdfl.core.fates import FateClass
from netdfl.core.types import Edge, NodeId
from netdfl.core.units import parse_time_ns
from netdfl.record.status import Phase
from netdfl.replaying.happenings import EndedMessage
from netdfl.replaying.playing import Halts, Playback

FORMS = "12.3s, round 7, `lost 2->3 #5` (or sent, delivered, late), `crash 4`, stall, end"
_MESSAGE = re.compile(r"(?:(sent|delivered|lost|late|duplicate)\s+)?(\d+)\s*->\s*(\d+)(?:\s*#\s*(\d+))?")
_OTHER = re.compile(r"(round|crash)\s+(\d+)")


@dataclass(frozen=True)
class StopPoint:
    """A moment at which a playback stops.

    Attributes:
        from_here: returns the condition to stop, counted from the playback's present moment on; raises InputError if
            that can't come true.
        lies_behind: whether the moment has passed, so that the replay must begin anew; always false for a moment that
            recurs, such as the next loss on a link.
        at_ns: the time of the moment, if it is given as a time; else None.
    """

    from_here: Callable[[Playback], Halts]
    lies_behind: Halts = lambda playing: False
    at_ns: int | None = None


def at_time(at_ns: int) -> StopPoint:
    """Return the stop point after all events that are due up to the virtual time `at_ns`."""

    def come(playing: Playback) -> bool:
        due = playing.next_ns
        return due is None or due > at_ns

    return StopPoint(lambda playing: come, lambda playing: playing.now_ns > at_ns, at_ns)


def _in_round(round: int) -> StopPoint:
    """Return the stop point at which the first node has begun `round`."""

    def come(playing: Playback) -> bool:
        return playing.happenings.round >= round

    return StopPoint(lambda playing: come, come)


@dataclass(frozen=True)
class _MessageStop:
    """A stop point: the moment at which a message on `edge` is sent, or its fate becomes known.

    `what` is `sent` or a fate such as `lost` (empty: any fate), `number` the message's number on the edge. Without a
    number, it is the next such message.
    """

    edge: Edge
    what: str = ""
    number: int | None = None

    def lies_behind(self, playing: Playback) -> bool:
        return self.number is not None and self._come(playing)

    def from_here(self, playing: Playback) -> Halts:
        check_node(playing, max(self.edge))
        if self.number is not None:
            return self._come
        before = self._count(playing)
        return lambda playing: self._count(playing) > before

    def _count(self, playing: Playback) -> int:
        """Return how many messages on the edge were sent so far, or had the fate `what`."""
        if self.what == "sent":
            return self._sent(playing)
        ended = playing.happenings.ended.get(self.edge, {})
        return sum(map(self._is, ended.values()))

    def _sent(self, playing: Playback) -> int:
        simulated = playing.world.nodes.get(self.edge[0])
        edge = None if simulated is None else simulated.ledger.edges.get(self.edge[1])
        return 0 if edge is None else edge.sent

    def _come(self, playing: Playback) -> bool:
        assert self.number is not None
        if self._sent(playing) < self.number:
            return False
        numbers = playing.happenings.numbers(self.edge, playing.world.fabric.flights())
        key = next((key for key, number in numbers.items() if number == self.number), None)
        if key is None or self.what == "sent":
            return key is not None
        ended = playing.happenings.ended[self.edge].get(key)
        return ended is not None and self._is(ended)

    def _is(self, ended: EndedMessage) -> bool:
        if self.what == "lost":
            return ended.lost
        return not self.what or any(fate.counts_as is FateClass(self.what) for fate in ended.fates)


def _at_crash(node: NodeId) -> StopPoint:
    """Return the stop point at which `node` is down after a crash, which may be the present moment."""

    def from_here(playing: Playback) -> Halts:
        check_node(playing, node)
        return lambda playing: playing.supervisor.fleet.status.nodes[node].phase is Phase.CRASHED

    return StopPoint(from_here)


def _at_stall(playing: Playback) -> Halts:
    """Return a condition that is true once the diagnosis finds a stall of the fleet that it has not found before."""
    before = len(playing.watch.history.findings)
    return lambda playing: len(playing.watch.history.findings) > before


def _at_end(playing: Playback) -> Halts:
    """Return a condition that is true once the run has ended; the fleet is kept so that it can be inspected."""
    return lambda playing: playing.ended


def check_node(playing: Playback, node: NodeId) -> None:
    """Raise InputError if there is no node with this id."""
    expect(is_whole(node, 0), "node", node, "the number of a node")
    num_nodes = playing.scenario.num_nodes
    if not 0 <= node < num_nodes:
        raise InputError(f"there is no node {node}; nodes are 0 to {num_nodes - 1}")


def read_until(text: str) -> StopPoint:
    """Return the stop point that `text` names, such as `round 7` or `lost 2->3 #5`. Raises InputError if none fits."""
    text = text.strip()
    if found := _MESSAGE.fullmatch(text):
        what, src, dst, number = found.groups()
        message = _MessageStop((int(src), int(dst)), what or "", None if number is None else int(number))
        return StopPoint(message.from_here, message.lies_behind)
    if found := _OTHER.fullmatch(text):
        return (_in_round if found[1] == "round" else _at_crash)(int(found[2]))
    if text in ("stall", "end"):
        return StopPoint(_at_stall if text == "stall" else _at_end)
    try:
        return at_time(parse_time_ns(text))
    except ValueError as error:
        raise InputError(f"{text!r} names no moment; write {FORMS}") from error


def read_edge(text: str) -> tuple[Edge, int | None]:
    """Parse an edge, optionally with the number of a message: `2->3 #5`. Raises InputError."""
    found = _MESSAGE.fullmatch(text.strip())
    if found is None or found[1]:
        raise InputError(f"{text!r} names no message; write it like 2->3 #5")
    return (int(found[2]), int(found[3])), None if found[4] is None else int(found[4])
