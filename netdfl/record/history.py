"""The recorded history of a run's nodes: waits, rounds and outages, in order of time."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from statistics import median
from typing import Any, NamedTuple

from netdfl.core.types import Edge, NodeId


class LagReason(StrEnum):
    """The reason why other nodes waited for a node.

    A node whose process was stopped reports so once it runs again (`STOPPED`). Where the run ended before that, all
    that is known is that it did not answer (`SILENT`).
    """

    ABSENT = "absent"
    CRASH = "crash"
    PAUSE = "pause"
    SLOW = "slow"
    STOPPED = "stopped"
    SILENT = "silent"
    BUSY = "busy"
    GONE = "gone"
    SENT_NOTHING = "sent_nothing"
    UNKNOWN = "unknown"


STANDS = frozenset({LagReason.STOPPED, LagReason.SILENT})
"""Reasons of outages in which a process, or its event loop, stopped running although no scheduled event demanded it."""
RESUMED_S = 0.05
"""A node that was paused gets the messages that waited for it within this many seconds, in real worlds, too."""


class TimedWait(NamedTuple):
    """A recorded wait, with times in seconds.

    Attributes:
        missing: the nodes whose messages had not come when the wait ended.
        since: when the wait began.
        until: when it ended.
        round: the waiting node's round.
        kind: the kind of the awaited messages.
        ended: how the wait ended.
        last_src: the sender of the last message that came; None: no message came.
        first_sent: when that message was first sent; None: unknown.
        last_sent: when it was last sent; None: unknown.
        arrived: when it was received; None: unknown.
    """

    missing: tuple[NodeId, ...]
    since: float
    until: float
    round: int
    kind: str
    ended: str
    last_src: NodeId | None
    first_sent: float | None
    last_sent: float | None
    arrived: float | None


class EndedRound(NamedTuple):
    """A round that a node finished: begin and end in seconds, number, and seconds of training.

    `cpu` is the processor time of the training, where it is less than `train`.
    """

    begin: float
    end: float
    round: int
    train: float
    cpu: float | None = None


class NodeOutage(NamedTuple):
    """A time span in which a node was down, paused or stopped, or did not answer the supervisor."""

    begin: float
    end: float
    why: LagReason


@dataclass(frozen=True)
class History:
    """The recorded history of a run's nodes, in order of time.

    Attributes:
        waits: the waits of each node.
        rounds: the finished rounds of each node.
        outages: the outages of each node.
        taken_for_gone: for (node, peer), the time in seconds from which on the node considered the peer gone and no
            longer waited for it.
        sent_all_the_same: (node, peer, round) of each message that a node sent to a peer although it considered the
            peer gone.
        usual_delays: the median delay in seconds of (sender, receiver, kind of message) over the messages that met no
            pause of their receiver.
        lost: for (waiting node, begin of its wait, awaited node), when the awaited message was sent that got lost.
    """

    waits: Mapping[NodeId, Sequence[TimedWait]]
    rounds: Mapping[NodeId, Sequence[EndedRound]]
    outages: Mapping[NodeId, Sequence[NodeOutage]]
    taken_for_gone: Mapping[Edge, float] = field(default_factory=dict)
    sent_all_the_same: Collection[tuple[NodeId, NodeId, int]] = ()
    usual_delays: Mapping[tuple[NodeId, NodeId, str], float] = field(default_factory=dict)
    lost: Mapping[tuple[NodeId, float, NodeId], float] = field(default_factory=dict)

    def sent_nothing(self, src: NodeId, dst: NodeId, round: int, until: float) -> bool:
        """Return whether `src` sent `dst` nothing for `round` by the time `until`, because it considered `dst` gone."""
        since = self.taken_for_gone.get((src, dst), inf)
        return since <= until and (src, dst, round) not in self.sent_all_the_same

    def ends(self) -> list[tuple[float, NodeId]]:
        """Return the time of the last known action of each node, the latest first."""
        last: dict[NodeId, float] = {node: rounds[-1].end for node, rounds in self.rounds.items() if rounds}
        for node, waits in self.waits.items():
            last[node] = max(last.get(node, 0.0), waits[-1].until) if waits else last.get(node, 0.0)
        return sorted(((end, node) for node, end in last.items()), reverse=True)

    def round_at(self, node: NodeId, at: float) -> int:
        """Return the round in which `node` was at the time `at`, in seconds."""
        rounds = self.rounds.get(node, ())
        place = bisect_right(rounds, at, key=lambda each: each.end)
        if place < len(rounds) and rounds[place].begin <= at:
            return rounds[place].round
        return rounds[place - 1].round + 1 if place else 0

    def last_wait(self, node: NodeId, until: float) -> TimedWait | None:
        """Return the last wait of `node` that was over at the time `until`."""
        waits = self.waits.get(node, ())
        place = bisect_right(waits, until, key=lambda each: each.until)
        return waits[place - 1] if place else None

    def outage(self, node: NodeId, begin: float, end: float) -> NodeOutage | None:
        """Return the last outage of `node` that overlaps the time from `begin` to `end`."""
        found = [each for each in self.outages.get(node, ()) if each.begin < end and each.end > begin]
        return found[-1] if found else None

    def longest_outage(self, node: NodeId, begin: float, end: float) -> NodeOutage | None:
        """Return the outage of `node` that overlaps most with the time from `begin` to `end`; of equals, the last."""
        found = [each for each in self.outages.get(node, ()) if each.begin < end and each.end > begin]
        return max(reversed(found), key=lambda each: min(each.end, end) - max(each.begin, begin), default=None)

    def trained(self, node: NodeId, round: EndedRound) -> float:
        """Return the seconds of training in `round`, minus the outages of the node that fell into no wait of it."""
        still = 0.0
        for each in self.outages.get(node, ()):
            begin, end = max(each.begin, round.begin), min(each.end, round.end)
            if begin < end:
                still += end - begin - self._waited(node, begin, end)
        return max(0.0, round.train - still)

    def _waited(self, node: NodeId, begin: float, end: float) -> float:
        """Return the seconds between `begin` and `end` in which `node` waited."""
        waits, waited = self.waits.get(node, ()), 0.0
        for each in waits[bisect_right(waits, begin, key=lambda one: one.until) :]:
            if each.since >= end:
                break
            waited += min(each.until, end) - max(each.since, begin)
        return waited

    def held(self, node: NodeId, since: float, until: float) -> float:
        """Return the seconds after `since` in which something waited for the end of a pause of `node`, until `until`.

        They are 0 if no pause ended then.
        """
        for each in self.outages.get(node, ()):
            if each.why is LagReason.PAUSE and 0 <= until - each.end <= RESUMED_S:
                return max(0.0, each.end - max(each.begin, since))
        return 0.0

    def stops(self, node: NodeId, begin: float, end: float) -> dict[LagReason, float]:
        """Return the seconds between `begin` and `end` in which the process of `node` stood still, by reason."""
        found: dict[LagReason, float] = {}
        for each in self.outages.get(node, ()):
            if each.why in STANDS and (overlap := min(each.end, end) - max(each.begin, begin)) > 0:
                found[each.why] = found.get(each.why, 0.0) + overlap
        return found

    def usual(self) -> dict[int, float]:
        """Return the usual training time of each round: the median over the nodes, in seconds."""
        took: defaultdict[int, list[float]] = defaultdict(list)
        for node, rounds in self.rounds.items():
            for each in rounds:
                if (trained := self.trained(node, each)) > 0:
                    took[each.round].append(trained)
        return {round: median(times) for round, times in took.items()}


def read_outages(rows: Callable[[str], Sequence[tuple[Any, ...]]]) -> list[tuple[NodeId, str, float, float]]:
    """Return the times in which nodes were absent, down or paused: (node, kind of the first event, begin, end).

    Times are in seconds; an outage that has not ended has an infinite end. `rows` runs an SQL query.
    """
    going_on: dict[NodeId, tuple[str, float]] = {}
    found = []
    for node, kind, at_s in rows(
        "SELECT node, kind, at_s FROM events WHERE node IS NOT NULL AND kind IN "
        "('absent', 'crash', 'died', 'join', 'restart', 'pause', 'resume') ORDER BY at_s"
    ):
        if node in going_on:
            found.append((node, *going_on.pop(node), at_s))
        if kind not in ("join", "restart", "resume"):
            going_on[node] = (kind, at_s)
    return found + [(node, *began, inf) for node, began in going_on.items()]


def read_stops(rows: Callable[[str], Sequence[tuple[Any, ...]]]) -> list[tuple[NodeId, LagReason, float, float]]:
    """Return the times in which a node's process was stopped or did not answer, as (node, reason, begin, end).

    Times are in seconds. `rows` runs an SQL query.
    """
    told = rows(
        "SELECT node, kind, at_s, CAST(details->>'seconds' AS DOUBLE) FROM events "
        "WHERE kind IN ('stopped', 'silent') ORDER BY at_s"
    )
    return [
        (node, LagReason(kind), at_s - lasted, at_s)
        for node, kind, at_s, lasted in told
        if node is not None and lasted is not None
    ]
