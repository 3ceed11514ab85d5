"""What is due in a fabric, and when.

Most of what a fleet sends leaves a node for all of its neighbors at one instant, and where their links take the same
time it arrives at one instant too. Such a multicast is one entry until it arrives, which saves an entry and a look at
each of its messages (`docs/performance.md` says how much). An instant holds either multicasts or single messages:
where it has to hold others, or somebody looks at what is under way, its multicasts are taken apart first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from netdfl.core.types import Multicast
from netdfl.transport.simulated.edge_queues import Due, EdgeQueue


class ScheduledMulticast(NamedTuple):
    """A multicast of messages of `nbytes` each over `queues`, which arrives at one instant."""

    multicast: Multicast
    queues: Sequence[EdgeQueue]
    nbytes: int
    salt: int
    sent_ns: int

    def dues(self) -> Iterator[Due]:
        """Its messages, one by one."""
        for queue, message in zip(self.queues, self.multicast.messages, strict=True):
            yield queue.tie ^ self.salt, queue, message, self.nbytes, self.sent_ns, None, 0


def apart(multicasts: Iterable[ScheduledMulticast]) -> list[Due]:
    """All their messages, in the order in which they were sent."""
    return [due for multicast in multicasts for due in multicast.dues()]


def are_alike(multicasts: Sequence[ScheduledMulticast]) -> bool:
    """Whether all their messages differ in their edges and contents alone, and were sent at one instant."""
    (_, _, id, _), _, nbytes, _, sent_ns = multicasts[0]
    return all([m.multicast.id == id and m.nbytes == nbytes and m.sent_ns == sent_ns for m in multicasts])


def is_void(entry: Due) -> bool:
    """Whether its stage has changed its mind since."""
    departure = entry[5]
    return departure is not None and departure.unit.pending is not departure


class Instants:
    """The instants to come. `due` are those of single messages, `multicasts` the others; `times` has both."""

    def __init__(self) -> None:
        """Nothing is due yet."""
        self.times: list[int] = []
        self.due: dict[int, list[Due]] = {}
        self.multicasts: dict[int, list[ScheduledMulticast]] = {}

    def next_ns(self) -> int | None:
        """When something is due, or None."""
        times = self.times
        while times:
            if times[0] in self.multicasts:
                return times[0]
            entries = self.due[times[0]]
            if (entries and not is_void(entries[0])) or not all(map(is_void, entries)):
                return times[0]
            del self.due[heappop(times)]
        return None

    def entries(self, at_ns: int) -> list[Due]:
        """The single messages of an instant, to which others may be added; its multicasts are taken apart."""
        entries = self.due.get(at_ns)
        if entries is None:
            multicasts = self.multicasts.pop(at_ns, None)
            if multicasts is None:
                heappush(self.times, at_ns)
            entries = self.due[at_ns] = apart(multicasts or ())
        return entries

    def schedule(self, multicast: ScheduledMulticast, at_ns: int) -> None:
        """Let a multicast be due at an instant, one by one where single messages are due there."""
        multicasts = self.multicasts.get(at_ns)
        if multicasts is not None:
            multicasts.append(multicast)
        elif at_ns in self.due:
            self.due[at_ns] += multicast.dues()
        else:
            self.multicasts[at_ns] = [multicast]
            heappush(self.times, at_ns)

    def take_apart(self) -> None:
        """Have single messages alone."""
        for at_ns, multicasts in self.multicasts.items():
            self.due[at_ns] = apart(multicasts)
        self.multicasts.clear()

    def pop(self, now_ns: int) -> tuple[Sequence[ScheduledMulticast], list[Due]]:
        """What is due first, which is at `now_ns`: either multicasts, or single messages."""
        heappop(self.times)
        multicasts = self.multicasts.pop(now_ns, None)
        return ((), self.due.pop(now_ns)) if multicasts is None else (multicasts, [])
