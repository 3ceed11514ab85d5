"""The reference driver: runs units through their paths with one heap. Sans-I/O; the clock is the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from netdfl.core.fates import FateReason
from netdfl.links.path import Path
from netdfl.links.rules.base import Departure, Dropped, StageOutcome, Transit
from netdfl.links.rules.keyed_random import tie_break


class Drive:
    """Every unit that is under way, and what becomes of it.

    `arrived(unit, at_ns)` and `dropped(unit, reason, at_ns)` are called when it happens. Units of
    equal time go in the order of a keyed hash of (edge, kind, round, step, attempt, copy), so the
    order in which they were put in does not matter. A stage that lets a unit go at once is left at
    once; only a wait goes through the heap.
    """

    __slots__ = ("_arrived", "_count", "_dropped", "_heap", "_seed")

    def __init__(
        self, seed: int, arrived: Callable[[Transit, int], None], dropped: Callable[[Transit, FateReason, int], None]
    ) -> None:
        """`seed` is that of the tie-breaking hash."""
        self._seed = seed
        self._arrived = arrived
        self._dropped = dropped
        self._count = 0
        self._heap: list[tuple[int, int, int, Departure, Path, int]] = []

    def next_ns(self) -> int | None:
        """When something is due, or None."""
        heap = self._heap
        while heap and heap[0][3].unit.pending is not heap[0][3]:
            heappop(heap)
        return heap[0][0] if heap else None

    def enter(self, path: Path, unit: Transit, now_ns: int) -> None:
        """Put `unit` on `path` now."""
        self._go(path, 0, unit, now_ns)

    def submit(self, path: Path, unit: Transit, at_ns: int) -> None:
        """Put `unit` on `path` at `at_ns`, when `run` gets there."""
        self._push(path, -1, Departure(unit, at_ns))

    def take(self, path: Path, place: int, outcome: StageOutcome, now_ns: int) -> None:
        """Act on an outcome of stage `place`: go on, wait, hold or end."""
        unit = outcome.unit
        unit.pending = None
        if isinstance(outcome, Departure):
            if outcome.at_ns <= now_ns:
                self._go(path, place + 1, unit, now_ns)
            else:
                self._push(path, place, outcome)
        elif isinstance(outcome, Dropped):
            self._dropped(unit, outcome.reason, now_ns)

    def run(self, until_ns: int) -> None:
        """Do all that is due up to `until_ns`, in order of time."""
        heap = self._heap
        while heap and heap[0][0] <= until_ns:
            at_ns, _, _, departure, path, place = heappop(heap)
            unit = departure.unit
            if unit.pending is departure:
                unit.pending = None
                self._go(path, place + 1, unit, at_ns)

    def in_flight(self) -> Iterable[tuple[Transit, int]]:
        """Units under way with the time at which each leaves its stage, in no order."""
        return ((entry[3].unit, entry[0]) for entry in self._heap if entry[3].unit.pending is entry[3])

    def _push(self, path: Path, place: int, departure: Departure) -> None:
        unit = departure.unit
        unit.pending = departure
        self._count += 1
        heappush(self._heap, (departure.at_ns, tie_break(self._seed, unit), self._count, departure, path, place))

    def _go(self, path: Path, place: int, unit: Transit, now_ns: int) -> None:
        stages = path.stages
        while place < len(stages):
            outcomes = stages[place].enter(unit, now_ns)
            if len(outcomes) != 1:
                for outcome in outcomes:
                    self.take(path, place, outcome, now_ns)
                return
            outcome = outcomes[0]
            if not isinstance(outcome, Departure) or outcome.at_ns > now_ns:
                self.take(path, place, outcome, now_ns)
                return
            place += 1
        self._arrived(unit, now_ns)
