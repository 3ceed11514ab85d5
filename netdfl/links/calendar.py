"""The instants to come and the entries that are due at each: a heap of times, and a list for every time.

An instant is one element of the heap, however much is due at it. Most of what a fleet sends arrives at few instants; a
heap of entries would be many times as deep, and every entry would be compared on its way up and down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

X = TypeVar("X")


class EventCalendar(Generic[X]):
    """Entries by the instant at which they are due, in the order in which they were added.

    An entry may become void while it waits, as when a link's new rate moves a departure: `is_void(at_ns, entry)` tells.
    An instant that has nothing else is skipped.
    """

    __slots__ = ("_is_void", "_times", "instants")

    def __init__(self, is_void: Callable[[int, X], bool]) -> None:
        """Begin with nothing due."""
        self._is_void = is_void
        self._times: list[int] = []
        self.instants: dict[int, list[X]] = {}

    def at(self, at_ns: int) -> list[X]:
        """Return the entries of an instant, to which others may be added."""
        entries = self.instants.get(at_ns)
        if entries is None:
            heappush(self._times, at_ns)
            entries = self.instants[at_ns] = []
        return entries

    def next_ns(self) -> int | None:
        """Return the first instant at which something is due, or None."""
        times, is_void = self._times, self._is_void
        while times:
            at_ns = times[0]
            for entry in self.instants[at_ns]:
                if not is_void(at_ns, entry):
                    return at_ns
            del self.instants[heappop(times)]
        return None

    def pop(self) -> list[X]:
        """Take the entries of the first instant off the calendar. Entries that this instant gets later come anew."""
        return self.instants.pop(heappop(self._times))

    def __iter__(self) -> Iterator[tuple[int, X]]:
        """Give every entry that is not void, with its instant, in no order of time."""
        for at_ns, entries in self.instants.items():
            for entry in entries:
                if not self._is_void(at_ns, entry):
                    yield at_ns, entry

    def remove(self, is_unwanted: Callable[[X], bool]) -> None:
        """Take entries off the calendar."""
        for entries in self.instants.values():
            entries[:] = [entry for entry in entries if not is_unwanted(entry)]
