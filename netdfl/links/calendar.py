"""A calendar of entries (such as arrivals) by the instant at which they are due: a heap of instants, a list for each.

Relies on: instants as whole nanoseconds, so that messages that are due together have equal keys.

Why: An instant is one element of the heap, however many entries are due at it. Most messages of a fleet arrive at few
instants; a heap of entries would be many times as deep, and every entry would be compared on its way up and down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

X = TypeVar("X")


class EventCalendar(Generic[X]):
    """Entries grouped by the instant at which they are due, each group in the order of addition.

    An entry may become void while it waits, as when a link's new rate moves a departure. `is_void(at_ns, entry)` tests
    for this, and an instant that has only void entries is skipped. So a moved entry need not be found and removed.
    """

    __slots__ = ("_is_void", "_times", "instants")

    def __init__(self, is_void: Callable[[int, X], bool]) -> None:
        """Start without entries; `is_void` tests whether an entry at an instant is no longer valid."""
        self._is_void = is_void
        self._times: list[int] = []
        self.instants: dict[int, list[X]] = {}

    def at(self, at_ns: int) -> list[X]:
        """Return the list of entries at an instant, to which the caller may append."""
        entries = self.instants.get(at_ns)
        if entries is None:
            heappush(self._times, at_ns)
            entries = self.instants[at_ns] = []
        return entries

    def next_ns(self) -> int | None:
        """Return the first instant, in ns, with an entry that is still valid; None if there is none."""
        times, is_void = self._times, self._is_void
        while times:
            at_ns = times[0]
            for entry in self.instants[at_ns]:
                if not is_void(at_ns, entry):
                    return at_ns
            del self.instants[heappop(times)]
        return None

    def pop(self) -> list[X]:
        """Remove and return the entries of the first instant. Entries that are added to it later make it due again."""
        return self.instants.pop(heappop(self._times))

    def __iter__(self) -> Iterator[tuple[int, X]]:
        """Yield every entry that is still valid, with its instant in ns; the instants are in no order."""
        for at_ns, entries in self.instants.items():
            for entry in entries:
                if not self._is_void(at_ns, entry):
                    yield at_ns, entry

    def remove(self, is_unwanted: Callable[[X], bool]) -> None:
        """Remove the entries for which `is_unwanted` is true."""
        for entries in self.instants.values():
            entries[:] = [entry for entry in entries if not is_unwanted(entry)]
