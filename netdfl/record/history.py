"""What a run recorded of its nodes, each in order of time: waits, rounds, outages."""

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


class Why(StrEnum):
    """Why a node was waited for.

    One whose process nobody let run tells so itself once it runs again (`STOPPED`); where the run ended before that,
    all that is known is that it did not answer (`SILENT`).
    """

    CRASH = "crash"
    PAUSE = "pause"
    SLOW = "slow"
    STOPPED = "stopped"
    SILENT = "silent"
    BUSY = "busy"
    GONE = "gone"
    SENT_NOTHING = "sent_nothing"
    UNKNOWN = "unknown"


STANDS = frozenset({Why.STOPPED, Why.SILENT})
"""Outages that no schedule asked for: the process, or its event loop, stood still."""


class Waiting(NamedTuple):
    """A wait as recorded, with when the message that ended it was first sent, last sent, and arrived."""

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
    """A round that a node ended: when, its number, what its training took, and that of a processor, if that is less."""

    begin: float
    end: float
    round: int
    train: float
    cpu: float | None = None


class NodeOutage(NamedTuple):
    """A time in which a node was down, paused, did not run, or did not answer."""

    begin: float
    end: float
    why: Why


@dataclass(frozen=True)
class History:
    """What a run recorded of its nodes, each in order of time.

    `taken_for_gone` is since when a node took another for gone, and `sent_all_the_same` the rounds for which it sent it
    something.
    """

    waits: Mapping[NodeId, Sequence[Waiting]]
    rounds: Mapping[NodeId, Sequence[EndedRound]]
    outages: Mapping[NodeId, Sequence[NodeOutage]]
    taken_for_gone: Mapping[Edge, float] = field(default_factory=dict)
    sent_all_the_same: Collection[tuple[NodeId, NodeId, int]] = ()

    def sent_nothing(self, src: NodeId, dst: NodeId, round: int, until: float) -> bool:
        """Whether `src` sent `dst` nothing for `round`, having taken it for gone: then nothing was lost."""
        since = self.taken_for_gone.get((src, dst), inf)
        return since <= until and (src, dst, round) not in self.sent_all_the_same

    def ends(self) -> list[tuple[float, NodeId]]:
        """When each node did the last thing that is known of it, the last node first."""
        last: dict[NodeId, float] = {node: rounds[-1].end for node, rounds in self.rounds.items() if rounds}
        for node, waits in self.waits.items():
            last[node] = max(last.get(node, 0.0), waits[-1].until) if waits else last.get(node, 0.0)
        return sorted(((end, node) for node, end in last.items()), reverse=True)

    def round_at(self, node: NodeId, at: float) -> int:
        """The round in which `node` is at a time."""
        rounds = self.rounds.get(node, ())
        place = bisect_right(rounds, at, key=lambda each: each.end)
        if place < len(rounds) and rounds[place].begin <= at:
            return rounds[place].round
        return rounds[place - 1].round + 1 if place else 0

    def last_wait(self, node: NodeId, until: float) -> Waiting | None:
        """The last wait of `node` that had ended by then."""
        waits = self.waits.get(node, ())
        place = bisect_right(waits, until, key=lambda each: each.until)
        return waits[place - 1] if place else None

    def outage(self, node: NodeId, begin: float, end: float) -> NodeOutage | None:
        """The last outage of `node` that overlaps a time."""
        found = [each for each in self.outages.get(node, ()) if each.begin < end and each.end > begin]
        return found[-1] if found else None

    def longest_outage(self, node: NodeId, begin: float, end: float) -> NodeOutage | None:
        """The outage of `node` that took most of a time; the last of those that took as much."""
        found = [each for each in self.outages.get(node, ()) if each.begin < end and each.end > begin]
        return max(reversed(found), key=lambda each: min(each.end, end) - max(each.begin, begin), default=None)

    def trained(self, node: NodeId, round: EndedRound) -> float:
        """What the training of `round` took, without the time in which the node stood still."""
        outages = self.outages.get(node)
        if not outages:
            return max(0.0, round.train)
        still = sum(max(0.0, min(each.end, round.end) - max(each.begin, round.begin)) for each in outages)
        return max(0.0, round.train - still)

    def stops(self, node: NodeId, begin: float, end: float) -> dict[Why, float]:
        """For how much of a time the process of `node` did not run, or did not answer."""
        found: dict[Why, float] = {}
        for each in self.outages.get(node, ()):
            if each.why in STANDS and (overlap := min(each.end, end) - max(each.begin, begin)) > 0:
                found[each.why] = found.get(each.why, 0.0) + overlap
        return found

    def usual(self) -> dict[int, float]:
        """What training took at the median node, by round."""
        took: defaultdict[int, list[float]] = defaultdict(list)
        for node, rounds in self.rounds.items():
            for each in rounds:
                if (trained := self.trained(node, each)) > 0:
                    took[each.round].append(trained)
        return {round: median(times) for round, times in took.items()}


def read_outages(rows: Callable[[str], Sequence[tuple[Any, ...]]]) -> list[tuple[NodeId, str, float, float]]:
    """Times in which nodes were down, or paused: which node, the event that began it, from when to when.

    `rows` gives those of a query. One that has not ended does so at infinity.
    """
    going_on: dict[NodeId, tuple[str, float]] = {}
    found = []
    for node, kind, at_s in rows(
        "SELECT node, kind, at_s FROM events WHERE kind IN ('crash', 'died', 'restart', 'pause', 'resume') "
        "AND node IS NOT NULL ORDER BY at_s"
    ):
        if node in going_on:
            found.append((node, *going_on.pop(node), at_s))
        if kind not in ("restart", "resume"):
            going_on[node] = (kind, at_s)
    return found + [(node, *began, inf) for node, began in going_on.items()]


def read_stops(rows: Callable[[str], Sequence[tuple[Any, ...]]]) -> list[tuple[NodeId, Why, float, float]]:
    """Times in which a node's process did not run, or did not answer: which node, from when to when."""
    told = rows(
        "SELECT node, kind, at_s, CAST(details->>'seconds' AS DOUBLE) FROM events "
        "WHERE kind IN ('stopped', 'silent') ORDER BY at_s"
    )
    return [
        (node, Why(kind), at_s - lasted, at_s)
        for node, kind, at_s, lasted in told
        if node is not None and lasted is not None
    ]
