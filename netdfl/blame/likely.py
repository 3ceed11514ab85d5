"""The order in which possible causes are tried: events and bottlenecks, then the most time on the critical path."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from netdfl.blame.candidates import Candidate
from netdfl.core.types import Kind, NodeId
from netdfl.explore.rows import MemoryStore, MessageRow
from netdfl.record.base import WaitEnd, WaitRecord


def by_likelihood(candidates: Sequence[Candidate], rows: MemoryStore) -> list[Candidate]:
    """Sort possible causes: events and bottlenecks first, then the others by time on the critical path.

    The run's record, `rows`, does not say how much of that time is due to an event or a bottleneck.
    """
    times, deadlines = _times(rows)

    def time_of(candidate: Candidate) -> float:
        if candidate.kind in ("event", "bottleneck"):
            return float("inf")
        if candidate.kind == "deadline":
            return deadlines[candidate.place[0]]
        place = candidate.place[:2] if candidate.kind == "message" else candidate.place
        return times[place]

    return sorted(candidates, key=time_of, reverse=True)


def _times(rows: MemoryStore) -> tuple[dict[tuple[NodeId, ...], float], dict[NodeId, float]]:
    """Return the time in ns on a run's critical path that is due to each link and node, and to each node's deadline.

    Waits for a message count for its link, with the key (sender, receiver); computing counts for the node, with the key
    (node,). A wait that a deadline ended counts for that deadline, and also for the links of the missing messages.
    `rows` is the run's record.
    """
    found: dict[tuple[NodeId, ...], float] = defaultdict(float)
    deadlines: dict[NodeId, float] = defaultdict(float)
    for node, busy_ns, wait, came in _path(rows):
        found[node,] += busy_ns
        if wait is None:
            continue
        took_ns = wait.until_ns - wait.since_ns
        for src in wait.missing if came is None else (came.src,):
            found[src, node] += took_ns
        if wait.ended is WaitEnd.DEADLINE:
            deadlines[node] += took_ns
    return found, deadlines


def _path(rows: MemoryStore) -> Iterator[tuple[NodeId, int, WaitRecord | None, MessageRow | None]]:
    """Yield the parts of a run's critical path, from the end of the last wait back to the start; `rows` is its record.

    Each part has the node, the time in ns that it was busy, the wait before that, and the message that ended the wait.
    The message is None if a deadline ended the wait; the earliest part has no wait.
    """
    waits: dict[NodeId, list[WaitRecord]] = defaultdict(list)
    for each in sorted(rows.waits, key=lambda each: each.until_ns):
        waits[each.node].append(each)
    messages: Mapping[tuple[object, ...], MessageRow] = {
        (m.src, m.dst, m.kind, m.round, m.step, m.arrived_ns): m for m in rows.messages
    }
    node = max(waits, key=lambda node: waits[node][-1].until_ns, default=None)
    at_ns = max((wait.until_ns for wait in rows.waits), default=0)
    while node is not None:
        if (wait := _last(waits[node], at_ns)) is None:
            yield node, at_ns, None, None
            return
        came = _message(wait, messages) if wait.ended is WaitEnd.CAME else None
        yield node, at_ns - wait.until_ns, wait, came
        node, at_ns = (node, wait.since_ns) if came is None else (came.src, came.sent_ns)


def _last(waits: list[WaitRecord], at_ns: int) -> WaitRecord | None:
    """Return a node's last wait that ended by `at_ns`, or None.

    This wait and later ones are removed from `waits`, so that the critical path meets each only once and has an end.
    """
    while waits:
        wait = waits.pop()
        if wait.until_ns <= at_ns:
            return wait
    return None


def _message(wait: WaitRecord, messages: Mapping[tuple[object, ...], MessageRow]) -> MessageRow | None:
    if wait.last_src is None:
        return None
    for kind in (wait.kind, Kind.NOTICE):
        found = messages.get((wait.last_src, wait.node, kind, wait.round, wait.step, wait.until_ns))
        if found is not None:
            return found
    return None
