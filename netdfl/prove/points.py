"""The points of a simulated run at which a fault can act: each message sent, and each instant at which a node acts.

At its instant, a scripted event acts before everything else, and a message leaves at the instant at which its sender
acts. So there are no other points: a fault between two of them has the same effect as the same fault at the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from netdfl.core.fates import Fate, FateKind
from netdfl.core.types import Edge, Json, Kind, NodeId
from netdfl.core.units import format_time, parse_time_ns
from netdfl.explore.rows import MessageRow
from netdfl.prove.bound import BoundedFault, FaultBound
from netdfl.prove.player import Play
from netdfl.record.base import WaitEnd

NODES_FIRST, ORDERS_BETWEEN, MESSAGES_THEN = range(3)


@dataclass(frozen=True, order=True)
class FaultPoint:
    """One fault that can act from `at_ns` on, or another order of the messages and timers due at that instant.

    Attributes:
        at_ns: the time of the point.
        rank: the place of the fault among those of one instant: faults of nodes and links come first, of messages last.
        kind: the kind of fault, or `order`.
        nodes: the nodes that the fault concerns, which a symmetry exchanges.
        rest: the other values that tell the fault from others of the same instant.
        event: the scenario event that causes the fault.
        void: whether, in this run, the fault changes nothing that a property depends on.
    """

    at_ns: int
    rank: int
    kind: BoundedFault | Literal["order"]
    nodes: tuple[NodeId, ...]
    rest: tuple[int | str, ...]
    event: Json = field(compare=False, default_factory=dict)
    void: bool = field(compare=False, default=False)


def sent_in(play: Play, *, copied: bool) -> list[tuple[MessageRow, int]]:
    """Return the messages of a run in order of sending, each numbered among messages of the same name.

    Messages have the same name if all their identifying values are equal. With `copied`, links duplicate messages, and
    the copies are left out.
    """
    rows = sorted(play.run.rows.messages, key=lambda m: (m.sent_ns, m.src, m.dst, m.kind, m.round, m.step, m.attempt))
    numbers: Counter[tuple[object, ...]] = Counter()
    found, before = [], None
    for row in rows:
        name = row[:7]
        if copied and before == (name, row.sent_ns):
            continue
        before = name, row.sent_ns
        found.append((row, numbers[name]))
        numbers[name] += 1
    return found


@dataclass(frozen=True)
class PointFinder:
    """A finder of the points of a run at which the faults that `bound` permits can act.

    Attributes:
        bound: the bound.
        round_ns: the length of a round.
        rounds: the number of rounds.
        crashes: the forms of a crash that the scenario can have, as keys of an event.
        copied: whether links duplicate messages.
        drops_late: whether a message that comes after its receiver stopped waiting for it changes nothing.
        unweighed: fates of messages, at the end of the run, that no property depends on.
        reads_rows: whether a property reads the record itself, so that no fault is void.
    """

    bound: FaultBound
    round_ns: int
    rounds: int
    crashes: Sequence[Json] = ()
    copied: bool = False
    drops_late: bool = False
    unweighed: tuple[str, ...] = ()
    reads_rows: bool = False

    def points(self, play: Play) -> list[FaultPoint]:
        """Return all points of `play`, a simulated run, in order."""
        sent = sent_in(play, copied=self.copied)
        named = [(row, number) for row, number in sent if self.bound.reaches(row.kind, row.round)]
        found: list[FaultPoint] = []
        for kind, most in self.bound.most.items():
            if not most:
                continue
            if kind == "loss":
                found += (self._loss(row, number) for row, number in named)
            elif kind == "delay":
                found += self._delays(play, named)
            elif kind == "cut":
                found += self._cuts([row for row, _ in named])
            else:
                found += self._of_nodes(kind, [row for row, _ in named])
        return sorted(found)

    # messages

    def _loss(self, row: MessageRow, number: int) -> FaultPoint:
        event = {**_when(row), "drop": f"{row.src}->{row.dst}", **_name(row, number)}
        return FaultPoint(row.sent_ns, MESSAGES_THEN, "loss", row[:2], _rest(row, number), event, self._is_void(row))

    def _is_void(self, row: MessageRow) -> bool:
        """Return whether losing the message `row` changes nothing, as it never arrived or was no longer needed."""
        if self.reads_rows:
            return False
        came_late = row.fate == Fate.LATE.text and self.drops_late
        return came_late or _is_dropped(row) or row.fate in (Fate.GONE.text, *self.unweighed)

    def _delays(self, play: Play, named: Sequence[tuple[MessageRow, int]]) -> Iterator[FaultPoint]:
        ends = {
            (wait.node, wait.round, wait.step): wait.since_ns + wait.deadline_ns
            for wait in play.run.rows.waits
            if wait.deadline_ns is not None and wait.kind is Kind.DATA and wait.ended is not WaitEnd.DEADLINE
        }
        for row, number in named:
            event = {**_when(row), "delay": f"{row.src}->{row.dst}", **_name(row, number)}
            end_ns = ends.get((row.dst, row.round, row.step)) if row.kind is Kind.DATA else None
            past_ns = 0 if end_ns is None or row.arrived_ns is None else end_ns + 1 - row.arrived_ns
            for by_ns in dict.fromkeys((self.round_ns, *([past_ns] if past_ns > 0 else []))):
                late = {**event, "by": exact_time(by_ns)}
                rest = (*_rest(row, number), by_ns)
                void = _is_dropped(row) and not self.reads_rows
                yield FaultPoint(row.sent_ns, MESSAGES_THEN, "delay", row[:2], rest, late, void)

    # nodes and links

    def _of_nodes(self, kind: BoundedFault, rows: Sequence[MessageRow]) -> Iterator[FaultPoint]:
        """Yield a crash or pause (`kind`) of each node before every instant at which it sends or receives.

        One more comes after the last such instant.
        """
        instants: dict[NodeId, set[int]] = {}
        for row in rows:
            instants.setdefault(row.src, set()).add(row.sent_ns)
            if row.arrived_ns is not None:
                instants.setdefault(row.dst, set()).add(row.arrived_ns)
        ways = self.crashes if kind == "crash" else ({"for": exact_time(self.round_ns)},)
        for node, at in sorted(instants.items()):
            for at_ns in sorted({*at, max(at) + 1}):
                for number, way in enumerate(ways):
                    event = {"at": exact_time(at_ns), kind: node, **way}
                    yield FaultPoint(at_ns, NODES_FIRST, kind, (node,), (number,), event)

    def _cuts(self, rows: Sequence[MessageRow]) -> Iterator[FaultPoint]:
        """Yield outages of each link: in each round in which it carries a message, one for that round, one for ever."""
        first: dict[tuple[Edge, int], int] = {}
        for row in rows:
            place = ((row.src, row.dst), row.round)
            first[place] = min(row.sent_ns, first.get(place, row.sent_ns))
        for (edge, round), sent_ns in sorted(first.items()):
            down = {"link": f"{edge[0]}->{edge[1]}", "state": "down_drop"}
            later = [ns for (other, of), ns in first.items() if other == edge and of >= round]
            yield FaultPoint(sent_ns, NODES_FIRST, "cut", edge, (round, 1), _in_round(round, {"for_rounds": 1, **down}))
            if round + 1 < self.rounds:
                yield FaultPoint(min(later), NODES_FIRST, "cut", edge, (round, 0), _in_round(round, down))


def exact_time(ns: int) -> str:
    """Return a time as exact text: `10ms`."""
    text = format_time(ns)
    return text if parse_time_ns(text) == ns else f"{ns}ns"


def _is_dropped(row: MessageRow) -> bool:
    return Fate.read(row.fate).kind is FateKind.DROPPED


def _in_round(round: int, event: Json) -> Json:
    return {"at_round": round, **event}


def _when(row: MessageRow) -> Json:
    return {"at_round": row.round} if row.round >= 0 else {"at": exact_time(row.sent_ns), "for": "1ns"}


def _name(row: MessageRow, number: int) -> Json:
    """Return event keys that identify the message `row` among all others of its link and round.

    `number` is its place among messages that agree in all these keys.
    """
    names = {"step": row.step, "attempt": row.attempt, "incarnation": row.epoch, "number": number}
    return {"kind": row.kind.value, **names}


def _rest(row: MessageRow, number: int) -> tuple[int | str, ...]:
    return (row.kind.value, row.epoch, row.round, row.step, row.attempt, number)
