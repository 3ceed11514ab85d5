"""A run as activities, events and counters on the rows of a timeline, from which each trace format is made.

The record says how long the training of a round took, but not when it began. The training is drawn in the first time
without waits that is long enough; the rest of such times counts as mixing and sending.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import NodeId
from netdfl.record.forms import read_details
from netdfl.record.history import EndedRound, History, LagReason, TimedWait
from netdfl.record.kept_stalls import kept_stalls
from netdfl.record.run import Run
from netdfl.record.time_spent import read_history

LEAST_NS = 1000
"""The shortest time between two waits that is drawn as an activity, in ns."""
FIGURES = ("test_accuracy", "test_loss", "consensus_distance", "mean_local_accuracy", "weight_sum", "error")


class TrackLane(IntEnum):
    """The rows that one node has in an exported timeline: its training and waits, its rounds, its messages."""

    DOES = 0
    ROUNDS = 1
    MESSAGES = 2


class Track(NamedTuple):
    """A row of the timeline; a `node` of None is the fleet."""

    node: NodeId | None
    lane: TrackLane


FLEET = Track(None, TrackLane.DOES)


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """An activity with a begin and an end, drawn on one row of the timeline."""

    track: Track
    begin_ns: int
    end_ns: int
    name: str
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TraceInstant:
    """An event at one time on a row of the timeline.

    Attributes:
        track: the row.
        at_ns: the time.
        name: the text that is shown.
        details: further values by name.
        leaves: the number of a message whose arrow begins here; None: no arrow does.
        comes: the number of a message whose arrow ends here; None: no arrow does.
    """

    track: Track
    at_ns: int
    name: str
    details: Mapping[str, object] = field(default_factory=dict)
    leaves: int | None = None
    comes: int | None = None


@dataclass(frozen=True, slots=True)
class CounterValue:
    """The value that a counter of the fleet has from a moment on."""

    at_ns: int
    name: str
    value: float


def course(run: Run) -> Iterator[TraceSpan | TraceInstant | CounterValue]:
    """Yield all activities, events and counter values of `run`, in any order.

    Raises InputError if its record is damaged.
    """
    history, _ = read_history(run)
    yield from _rounds(history)
    for node in sorted({*history.rounds, *history.waits}):
        yield from _does(history, node)
    ((end_s,),) = run.rows("SELECT coalesce(max(at_s), 0.0) FROM events")
    yield from _outages(history, end_s)
    yield from _stalled(run, history, end_s)
    yield from _messages(run)
    yield from _events(run)
    rows = run.rows("SELECT at_s, name, value FROM metrics WHERE node IS NULL AND name IN ? ORDER BY at_s", [FIGURES])
    yield from (CounterValue(_ns(at_s), name, value) for at_s, name, value in rows if value is not None)


def _ns(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def _rounds(history: History) -> Iterator[TraceSpan]:
    for node, rounds in history.rounds.items():
        for each in rounds:
            details = {"round": each.round, "train_s": each.train}
            yield TraceSpan(
                Track(node, TrackLane.ROUNDS), _ns(each.begin), _ns(each.end), f"round {each.round}", details
            )


def _does(history: History, node: NodeId) -> Iterator[TraceSpan]:
    """Yield the activities of `node`: its waits as recorded, then training and mixing in the times between them."""
    track, waits = Track(node, TrackLane.DOES), sorted(history.waits.get(node, ()), key=lambda wait: wait.since)
    last = 0
    for wait in waits:
        begin = max(_ns(wait.since), last)
        last = max(_ns(wait.until), begin)
        details = {"round": wait.round, "kind": wait.kind, "ended": wait.ended, "missing": list(wait.missing)}
        yield TraceSpan(track, begin, last, _waits(wait), details)
    for round in history.rounds.get(node, ()):
        yield from _works(track, round, [wait for wait in waits if wait.until > round.begin and wait.since < round.end])


def _works(track: Track, round: EndedRound, waits: Sequence[TimedWait]) -> Iterator[TraceSpan]:
    begin, end, train = _ns(round.begin), _ns(round.end), _ns(round.train)
    free, at = [], begin
    for wait in waits:
        free.append((at, min(_ns(wait.since), end)))
        at = max(at, _ns(wait.until))
    free.append((at, end))
    details = {"round": round.round}
    for first, last in free:
        if train > 0 and last - first >= train - LEAST_NS:
            until = min(first + train, last)
            yield TraceSpan(track, first, until, "training", details)
            first, train = until, 0
        if last - first >= LEAST_NS:
            yield TraceSpan(track, first, last, "mixing and sending", details)


def _waits(wait: TimedWait) -> str:
    missing = f", without {', '.join(map(str, wait.missing[:8]))}" if wait.missing else ""
    return f"waiting until node {wait.last_src} came" if wait.ended == "came" else f"waiting ({wait.ended}{missing})"


def _outages(history: History, end_s: float) -> Iterator[TraceSpan]:
    for node, outages in history.outages.items():
        for each in outages:
            name = {LagReason.PAUSE: "paused", LagReason.STOPPED: "not running"}.get(each.why, "down")
            until = max(min(each.end, end_s), each.begin)
            yield TraceSpan(Track(node, TrackLane.ROUNDS), _ns(each.begin), _ns(until), name)


def _stalled(run: Run, history: History, end_s: float) -> Iterator[TraceSpan]:
    """Yield waits that never ended, taken from snapshots of stalls, because the record has only finished ones."""
    open_waits: dict[NodeId, TraceSpan] = {}
    for kept in kept_stalls(run.path):
        for now in kept["nodes"] if kept["finding"]["permanent"] else ():
            wait = now["wait"]
            since_ns = None if wait is None else wait.get("since_ns")
            waits = history.waits.get(now["node"], ())
            if wait is None or since_ns is None or any(_ns(each.until) > since_ns for each in waits):
                continue
            name = f"waiting for {', '.join(wait['awaited'])} to the end"
            track, end = Track(now["node"], TrackLane.DOES), max(since_ns, _ns(end_s))
            open_waits[now["node"]] = TraceSpan(track, since_ns, end, name, {"stall": kept["finding"]["text"]})
    yield from open_waits.values()


def _messages(run: Run) -> Iterator[TraceInstant]:
    """Yield the departure and arrival of each message, linked by an arrow; a lost one has only its departure."""
    rows = run.rows(
        "SELECT src, dst, kind, round, step, attempt, nbytes, sent_s, arrived_s, fate FROM messages "
        "ORDER BY sent_s, src, dst, round, step, attempt"
    )
    for number, (src, dst, kind, round, step, attempt, nbytes, sent_s, arrived_s, fate) in enumerate(rows, start=1):
        details = {"round": round, "step": step, "attempt": attempt, "bytes": nbytes, "fate": fate}
        name, there = f"{kind} {src}->{dst}", Track(src, TrackLane.MESSAGES)
        if arrived_s is None:
            yield TraceInstant(there, _ns(sent_s), f"{name} {fate}", details)
            continue
        yield TraceInstant(there, _ns(sent_s), f"{name} sent", details, leaves=number)
        yield TraceInstant(Track(dst, TrackLane.MESSAGES), _ns(arrived_s), f"{name} {fate}", details, comes=number)


def _events(run: Run) -> Iterator[TraceInstant]:
    for at_s, node, kind, details in run.rows("SELECT at_s, node, kind, details::VARCHAR FROM events ORDER BY at_s"):
        if at_s is not None:
            track = FLEET if node is None else Track(node, TrackLane.ROUNDS)
            yield TraceInstant(track, _ns(at_s), kind, read_details(details))
