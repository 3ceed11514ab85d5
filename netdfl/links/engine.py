"""The link engine: carries contents (messages or packets) over edges, and reports when each arrives or why not.

The simulated fabric, the links above gRPC and the forwarder of packets all drive their links with it; their contents
differ. It is sans-I/O: the owner of the time asks `next_ns`, and calls `step` or `run` at that time.

    submit, enter -> stage -> stage -> ... -> stage -> arrived
                       |  ^
                       |  '-- the calendar, until the stage lets the unit go
                       |---- held, until a change releases it
                       '---> dropped

A unit is a content on its way. A stage without a delay is left at once; only a wait goes through the calendar. Two
rules make the order at one instant depend on the messages alone, and not on the order in which they were submitted:

- At every instant, the calendar's entries go in the order of their keys, and the entries of one edge in the order in
  which they were sent.
- Between instants, nothing enters a shared stage and nothing arrives: a unit that gets so far waits for its turn.

Where a path can be computed in advance (`edge_state.py` decides), a message goes straight to the instant of its
arrival. The arrivals of one instant without a stage before them are handed over as one batch.

Relies on: stages that give their outcomes at entry and at changes alone, ids that are unique on their edge, and order
keys that are hashes of edge and id.

Why: Messages in virtual time, messages above gRPC and packets meet the same rules, so one engine drives all of them:
two would come to differ. It is generic over its contents, and gets the order of one instant from its owner: keys for
messages, because golden logs hold it; the order of arrival for packets, as on a wire. Arrivals come as batches, since a
multicast arrives as a crowd and a call for each message would be much of its cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from netdfl.core.fates import FateReason
from netdfl.core.types import MessageId
from netdfl.links.calendar import EventCalendar
from netdfl.links.edge_state import UNKNOWN, EdgeState
from netdfl.links.rules.base import DROPPED, Departure, Drop, Hold, LinkRule, RetimingStage, StageOutcome, Transit

_MASK = (1 << 64) - 1
_COPY = 0x9E3779B97F4A7C15
E = TypeVar("E", bound=EdgeState)
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class InFlight(Transit, Generic[E, T]):
    """A unit (a message or packet, to link rules) inside an engine, with its content and its place on the path.

    `place` is the stage that holds the unit, `due_ns` its departure from there (None: no departure is known). A
    `withdrawn` unit was taken off the link; whatever a stage says about it later is ignored.
    """

    edge: E = None  # type: ignore[assignment]
    content: T = None  # type: ignore[assignment]
    order_key: int = 0
    place: int = 0
    due_ns: int | None = None
    withdrawn: bool = False

    @classmethod
    def of(
        cls, edge: E, content: T, id: MessageId, nbytes: int, order_key: int, copy: int = 0, *, corrupted: bool = False
    ) -> InFlight[E, T]:
        """Return an object that moves `content`, a message or packet, over `edge`; `copy` numbers duplicates from 1."""
        kind, life, (round, step), _, attempt = id
        src, dst = edge.edge
        return cls(
            src, dst, kind, round, step, attempt, nbytes, copy, corrupted, life, 0, None, None, edge, content, order_key
        )

    @property
    def key(self) -> int:
        """The key that orders this message or packet among others due at one instant; a duplicate's key differs."""
        return (self.order_key ^ self.copy * _COPY) & _MASK if self.copy else self.order_key

    @property
    def alone(self) -> Transit:
        """The data that link rules may use, without the content, to try a stage with."""
        return Transit(
            self.src,
            self.dst,
            self.kind,
            self.round,
            self.step,
            self.attempt,
            self.nbytes,
            self.copy,
            self.corrupted,
            self.incarnation,
            self.number,
        )

    def __deepcopy__(self, memo: object) -> Transit:
        """Copy the data that rules may use, without the content: copies are for trials, and contents are large."""
        return self.alone


Arrival: TypeAlias = tuple[int, E, T, InFlight[E, T] | None]
"""(order key, edge, content, its object on the path; None in place of the object: the arrival was computed at entry)"""
Order: TypeAlias = Callable[[list[Any]], Sequence[Any]]
"""A function that orders the arrivals and departures that are due at one instant, as the engine will process them."""
order_key_of, _edge_of, _unit_of = itemgetter(0), itemgetter(1), itemgetter(3)


def by_order_key(entries: list[Any]) -> Sequence[Any]:
    """Sort arrivals and departures due at one instant: across edges by order key, on one edge as they were added."""
    ordered = sorted(entries, key=order_key_of)
    if len(set(map(_edge_of, entries))) == len(entries):
        return ordered
    of_edge: dict[object, deque[Any]] = {}
    for entry in entries:
        of_edge.setdefault(entry[1], deque()).append(entry)
    return [of_edge[entry[1]].popleft() for entry in ordered]


def as_they_came(entries: list[Any]) -> Sequence[Any]:
    """Return arrivals and departures due at one instant in the order of their addition, as packets are on a wire."""
    return entries


class Route(NamedTuple, Generic[E]):
    """The edges over which a node sends one multicast, and their common delay if it is constant, else `UNKNOWN`."""

    edges: Sequence[E]
    delay_ns: int

    @classmethod
    def over(cls, edges: Sequence[E]) -> Route[E]:
        """Make the route over `edges`, with its delay if all edges have the same constant one."""
        first = edges[0].plan.delay_ns
        same = all([edge.plan.delay_ns == first for edge in edges])
        return cls(edges, first if same else UNKNOWN)


class Flight(NamedTuple, Generic[E, T]):
    """A message or packet under way; `at_ns` is its arrival or departure from a stage, None while a stage holds it."""

    edge: E
    content: T
    at_ns: int | None
    unit: InFlight[E, T] | None

    @property
    def stages(self) -> Sequence[LinkRule]:
        """The stages of its path that the message or packet has still to enter."""
        if self.unit is None or self.at_ns is None:
            return ()
        return self.edge.path.stages[self.unit.place + 1 : self.edge.plan.stop]


class LinkEngine(Generic[E, T]):
    """The engine that moves all contents (messages or packets) under way on a set of edges."""

    def __init__(
        self,
        arrived: Callable[[Sequence[Arrival[E, T]], int], None],
        dropped: Callable[[InFlight[E, T], FateReason, int], None],
        order: Order = by_order_key,
    ) -> None:
        """Start with nothing under way.

        Args:
            arrived: Takes the arrivals of one instant, in nanoseconds. A batch whose paths were computed in advance is
                in the order of sending: order rarely matters beyond the messages of one receiver, so `arrived` applies
                `order` where it needs it.
            dropped: Takes a message or packet that was dropped, with the reason and the instant.
            order: Sorts the arrivals and departures that are due at one instant.
        """
        self._arrived, self._dropped, self._order = arrived, dropped, order
        self._calendar: EventCalendar[Arrival[E, T]] = EventCalendar(self._is_void)
        self._held: dict[InFlight[E, T], None] = {}
        self._moved: dict[RetimingStage, int] = {}
        self._moved_ns = 0
        self._in_instant = False

    # contents come in

    def submit(
        self,
        route: Route[E],
        contents: Iterable[T],
        id: MessageId,
        sizes: Sequence[int],
        order_key: int,
        now_ns: int,
    ) -> Sequence[E]:
        """Put one message for several receivers on the edges of `route`, with a content and a size in bytes for each.

        Returns the edges whose content arrives at this very instant, because the whole path takes no time.
        """
        edges, delay_ns = route
        if delay_ns >= 0:
            self._calendar.at(now_ns + delay_ns).extend(
                [
                    (edge.order_key ^ order_key, edge, content, None)
                    for edge, content in zip(edges, contents, strict=True)
                ]
            )
            return () if delay_ns else edges
        at_once: list[E] = []
        for edge, content, nbytes in zip(edges, contents, sizes, strict=True):
            if self.enter(edge, content, id, nbytes, edge.order_key ^ order_key, now_ns) == now_ns:
                at_once.append(edge)
        return at_once

    def enter(self, edge: E, content: T, id: MessageId, nbytes: int, order_key: int, now_ns: int) -> int:
        """Put `content` on `edge`; return the time of its arrival if known already, else `UNKNOWN`."""
        _, at_once, delay_ns, _ = edge.plan
        at_ns = now_ns
        if delay_ns >= 0:
            at_ns += delay_ns
        elif at_once is None:
            self._go(InFlight.of(edge, content, id, nbytes, order_key), 0, now_ns)
            return UNKNOWN
        else:
            unit = edge.spare
            if unit is None:
                unit = edge.spare = InFlight.of(edge, content, id, nbytes, order_key)
                unit.edge = unit.content = None  # no circle: an edge that is dropped is freed at once
            unit.kind, unit.incarnation, (unit.round, unit.step), _, unit.attempt = id
            unit.nbytes = nbytes
            for stage in at_once:
                after_ns = stage.advance(unit, at_ns)
                if after_ns < at_ns:
                    unit.edge, unit.content, unit.order_key = edge, content, order_key
                    if after_ns == DROPPED:
                        self._dropped(unit, stage.reason, now_ns)
                        unit.edge = unit.content = None
                    else:
                        self._held[unit] = edge.spare = None
                    return UNKNOWN
                at_ns = after_ns
        self._calendar.at(at_ns).append((order_key, edge, content, None))
        return at_ns

    def resume(self, unit: InFlight[E, T], place: int, at_ns: int) -> None:
        """Continue the way of `unit`, a message or packet that another engine drove so far, at stage number `place`."""
        unit.place = place - 1
        self._wait(unit, at_ns)

    # time

    def next_ns(self) -> int | None:
        """Return the next instant at which a message or packet arrives, leaves a stage or is retimed, or None."""
        due = self._calendar.next_ns()
        if self._moved and (due is None or due > self._moved_ns):
            return self._moved_ns
        return due

    @property
    def departs_ns(self) -> int | None:
        """The next known instant at which a message or packet leaves a stage or arrives, or None."""
        return self._calendar.next_ns()

    @property
    def retime_ns(self) -> int | None:
        """The next instant at which a stage shared by several edges recomputes departures, or None."""
        return self._moved_ns if self._moved else None

    def step(self, now_ns: int) -> None:
        """Process the instant `now_ns`, which `next_ns` returned; what is added to it meanwhile makes it due again."""
        self._in_instant = True
        if self._moved and self._calendar.next_ns() != now_ns:
            self._retime(now_ns)
        else:
            entries = self._calendar.pop()
            if not any(map(_unit_of, entries)):
                self._arrived(entries, now_ns)
            else:
                for entry in self._order(entries) if len(entries) > 1 else entries:
                    self._go_on(entry, now_ns)
        self._in_instant = False

    def run(self, until_ns: int) -> None:
        """Process all instants up to `until_ns`, in order of time."""
        while (due := self.next_ns()) is not None and due <= until_ns:
            self.step(due)

    def run_ahead(self, until_ns: int, now_ns: int) -> None:
        """Process departures up to `until_ns`, but let shared stages recompute theirs only up to `now_ns`."""
        self.run(now_ns)
        while (due := self._calendar.next_ns()) is not None and due <= until_ns:
            self.step(due)

    def change(self, outcomes: Iterable[StageOutcome], now_ns: int) -> None:
        """Apply the `outcomes` (departures, drops, holds) that a stage returned when a scheduled event changed it."""
        for outcome in outcomes:
            self._take(outcome, now_ns)

    # contents under way

    def flights(self) -> Iterator[Flight[E, T]]:
        """Yield every content (message or packet) that is under way."""
        for at_ns, (_, edge, content, unit) in self._calendar:
            yield Flight(edge, content, at_ns, unit)
        for unit in self._held:
            yield Flight(unit.edge, unit.content, None, unit)

    def withdraw(self, is_wanted: Callable[[Flight[E, T]], bool], now_ns: int) -> list[Flight[E, T]]:
        """Take the contents (messages or packets) for which `is_wanted` is true off the links, and return them.

        A stage that has counted one of them, as in a queue's length, still counts it, unless the stage is shared.
        """
        flights = [flight for flight in self.flights() if is_wanted(flight)]
        computed = {id(flight.content) for flight in flights if flight.unit is None}
        if computed:
            self._calendar.remove(lambda entry: entry[3] is None and id(entry[2]) in computed)
        for unit in (flight.unit for flight in flights if flight.unit is not None):
            unit.due_ns, unit.withdrawn = None, True
            self._held.pop(unit, None)
            if unit.place in unit.edge.plan.retiming:
                stage = cast(RetimingStage, unit.edge.path.stages[unit.place])
                stage.withdraw(unit)
                self._note_move(stage, now_ns)
        return flights

    # stages

    def _go_on(self, entry: Arrival[E, T], now_ns: int) -> None:
        unit = entry[3]
        if unit is None:
            self._arrived((entry,), now_ns)
        elif unit.due_ns == now_ns:
            unit.due_ns = None
            if unit.place in unit.edge.plan.retiming:
                stage = cast(RetimingStage, unit.edge.path.stages[unit.place])
                stage.left(unit, now_ns)
                self._note_move(stage, now_ns)
            self._go(unit, unit.place + 1, now_ns)

    def _go(self, unit: InFlight[E, T], place: int, now_ns: int) -> None:
        """Let the message or packet `unit` enter stage number `place` and later ones, until one delays or drops it."""
        edge, in_instant = unit.edge, self._in_instant
        stages, shared, (stop, _, _, retiming) = edge.path.stages, edge.path.own.stop, edge.plan
        while place < stop:
            if place == shared and not in_instant:
                break
            stage = stages[place]
            outcomes = stage.enter(unit, now_ns)
            if place in retiming:
                self._note_move(cast(RetimingStage, stage), now_ns)
            elif len(outcomes) == 1 and type(outcomes[0]) is Departure and outcomes[0].at_ns <= now_ns:
                place += 1
                continue
            if not outcomes:
                unit.place = place
                self._held[unit] = None
            for outcome in outcomes:
                cast(InFlight[E, T], outcome.unit).place = place  # a copy was made in this stage
                self._take(outcome, now_ns)
            return
        if in_instant:
            self._arrived(((unit.order_key, edge, unit.content, unit),), now_ns)
        else:
            unit.place = place - 1
            self._wait(unit, now_ns)

    def _take(self, outcome: StageOutcome, now_ns: int) -> None:
        unit = cast(InFlight[E, T], outcome.unit)
        unit.due_ns = None
        if unit.withdrawn:
            return
        self._held.pop(unit, None)
        if isinstance(outcome, Drop):
            self._dropped(unit, outcome.reason, now_ns)
        elif isinstance(outcome, Hold):
            self._held[unit] = None
        elif outcome.at_ns > now_ns or unit.place in unit.edge.plan.retiming:
            self._wait(unit, outcome.at_ns)
        else:
            self._go(unit, unit.place + 1, now_ns)

    @staticmethod
    def _is_void(at_ns: int, entry: Arrival[Any, Any]) -> bool:
        """Return whether a calendar entry is outdated: its message or packet leaves the stage at another time now."""
        unit = entry[3]
        return unit is not None and unit.due_ns != at_ns

    def _wait(self, unit: InFlight[E, T], at_ns: int) -> None:
        unit.due_ns = at_ns
        self._calendar.at(at_ns).append((unit.key, unit.edge, unit.content, unit))

    # stages that are shared

    def _note_move(self, stage: RetimingStage, at_ns: int) -> None:
        if not self._moved or at_ns < self._moved_ns:
            self._moved_ns = at_ns
        self._moved[stage] = min(at_ns, self._moved.get(stage, at_ns))

    def _retime(self, now_ns: int) -> None:
        """Let shared stages recompute when the messages in them leave, after all other work of this instant."""
        moved, self._moved = self._moved, {}
        for stage, at_ns in moved.items():
            if at_ns > now_ns:
                self._note_move(stage, at_ns)
        for stage in [stage for stage, at_ns in moved.items() if at_ns <= now_ns]:
            self.change(stage.retimed(now_ns), now_ns)
            if (again_ns := stage.again_ns) is not None:
                self._note_move(stage, again_ns)
