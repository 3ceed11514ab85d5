"""What is due in a fabric, and when: at each instant single messages, or volleys."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from netdfl.transport.edge_queues import Due, Volley
from netdfl.transport.volleys import apart


def is_void(entry: Due) -> bool:
    """Whether its stage has changed its mind since."""
    departure = entry[5]
    return departure is not None and departure.unit.pending is not departure


class Instants:
    """The instants to come. `due` are those of single messages, `volleys` the others; `times` has both."""

    def __init__(self) -> None:
        """Nothing is due yet."""
        self.times: list[int] = []
        self.due: dict[int, list[Due]] = {}
        self.volleys: dict[int, list[Volley]] = {}

    def next_ns(self) -> int | None:
        """When something is due, or None."""
        times = self.times
        while times:
            if times[0] in self.volleys:
                return times[0]
            entries = self.due[times[0]]
            if (entries and not is_void(entries[0])) or not all(map(is_void, entries)):
                return times[0]
            del self.due[heappop(times)]
        return None

    def entries(self, at_ns: int) -> list[Due]:
        """The single messages that are due at an instant, to which others may be added; its volleys are taken apart."""
        entries = self.due.get(at_ns)
        if entries is None:
            volleys = self.volleys.pop(at_ns, None)
            if volleys is None:
                heappush(self.times, at_ns)
            entries = self.due[at_ns] = apart(volleys or ())
        return entries

    def fire(self, volley: Volley, at_ns: int) -> None:
        """Let a volley be due at an instant, one by one where single messages are due there."""
        volleys = self.volleys.get(at_ns)
        if volleys is not None:
            volleys.append(volley)
        elif at_ns in self.due:
            self.due[at_ns] += volley.dues()
        else:
            self.volleys[at_ns] = [volley]
            heappush(self.times, at_ns)

    def take_apart(self) -> None:
        """Have single messages alone."""
        for at_ns, volleys in self.volleys.items():
            self.due[at_ns] = apart(volleys)
        self.volleys.clear()

    def pop(self, now_ns: int) -> tuple[Sequence[Volley], list[Due]]:
        """What is due first, which is at `now_ns`: either volleys, or single messages."""
        heappop(self.times)
        volleys = self.volleys.pop(now_ns, None)
        return ((), self.due.pop(now_ns)) if volleys is None else (volleys, [])
