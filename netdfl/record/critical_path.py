"""The critical path of a run: a chain of causes from the end of the last node back to the start.

A node either is busy or waits. From a wait that ended with a message, the chain continues at the sender, at the time
when the message left. From a wait that ended by a deadline, or for a node that was rounds behind after an outage, it
continues at the beginning of the wait. So every moment of the run is counted once, under one cause.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from math import inf
from statistics import median
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

from netdfl.core.types import Kind, NodeId
from netdfl.record.base import WaitEnd
from netdfl.record.history import EndedRound, History, LagReason, TimedWait

T = TypeVar("T")
BEHIND = 2
"""A sender counts as behind its receiver from this many rounds on; a lag of one is usual between neighbors."""
LEAST_S = 1e-9
"""Spans of time below the record's resolution, in seconds, which count as nothing."""
SLOW = 2.0
"""A local round that takes more than this multiple of its round's median counts in part as a wait for a slow node."""


class TimeUse(StrEnum):
    """A use of the run's time, such as training or waiting."""

    COMPUTE = "compute"
    LINKS = "links"
    RESENDING = "resending"
    DEADLINES = "deadlines"
    LOST = "lost"
    SKIPPED = "skipped"
    BEHIND = "behind"
    REST = "rest"
    END = "end"


class Leg(NamedTuple):
    """A part of the critical path: a time span with one use, such as training or waiting for a node.

    Attributes:
        cause: the use of this time.
        seconds: the length of the time span.
        nodes: the nodes that were waited for; for time on a link, the sender and the receiver of the message;
            for the end of a stalled run, the nodes that waited first.
        why: the reason why the nodes that were waited for were behind.
        rounds: the number of rounds by which they were behind.
        by_deadline: whether a deadline ended the wait.
        times: the factor by which their training took longer than usual.
        begin: the start of a part on links, in seconds.
    """

    cause: TimeUse
    seconds: float
    nodes: tuple[NodeId, ...] = ()
    why: LagReason = LagReason.UNKNOWN
    rounds: int = 0
    by_deadline: bool = False
    times: float = 1.0
    begin: float = 0.0


class Standstill(NamedTuple):
    """The nodes of the stalls (waits that nothing ends) in which a run ended.

    Attributes:
        waiting: all nodes that wait in a stall.
        roots: the nodes that wait first; the other waiting nodes wait for these.
        culprits: the nodes that the roots wait for, and that wait for nothing themselves.
        began: when the first of these stalls began, in seconds.
    """

    waiting: frozenset[NodeId] = frozenset()
    roots: frozenset[NodeId] = frozenset()
    culprits: frozenset[NodeId] = frozenset()
    began: float = 0.0

    @classmethod
    def of(cls, stalls: Iterable[Mapping[str, Any]]) -> Self:
        """Return the nodes of those `stalls` and deadlocks, as in `result.json`, that had not ended."""
        lasting = [each for each in stalls if not each.get("over")]
        roots, behind, culprits = (
            frozenset(node for each in lasting for node in each.get(name, ()))
            for name in ("roots", "behind", "culprits")
        )
        began = min((each.get("began_s", 0.0) for each in lasting), default=0.0)
        return cls(roots | behind, roots, culprits - roots - behind, began)


NO_STANDSTILL = Standstill()
_WITHOUT: Mapping[str, TimeUse] = {WaitEnd.DEADLINE: TimeUse.DEADLINES, WaitEnd.SKIPPED: TimeUse.SKIPPED}
Legs: TypeAlias = Generator[Leg, None, T]
Moment: TypeAlias = tuple[float, NodeId]


def critical_path(history: History, total_s: float, end: Standstill = NO_STANDSTILL) -> list[Leg]:
    """Return the parts of the critical path, from the run's end back to its start.

    Their seconds add up to `total_s`, or to the recorded length of the run. In a round that never ended, time of
    unknown use counts as training, up to the usual training time of the node. A node that waits in a stall at the run's
    `end` does not count as behind: the last part of the path names the node that the stall waits for, if it was down or
    stood still, else the nodes that wait first.
    """
    return list(_PathWalk(history, end).legs(total_s))


class _PathWalk:
    def __init__(self, history: History, end: Standstill) -> None:
        self._history = history
        self._end = end
        self._final = max((rounds[-1].round + 1 for rounds in history.rounds.values() if rounds), default=0)
        self._left: dict[tuple[NodeId, EndedRound], float] = {}
        self._seen: set[int] = set()

    @cached_property
    def _usual(self) -> dict[int, float]:
        return self._history.usual()

    def legs(self, total_s: float) -> Iterator[Leg]:
        """Yield the parts of the critical path, the last one first."""
        ends = self._history.ends()
        if not ends:
            yield from self._unbegun(total_s)
            return
        yield from self._unfinished(ends, total_s)
        at, node = yield from self._stragglers(ends)
        while at > 0:
            wait = self._history.last_wait(node, at)
            yield from self._busy(node, 0.0 if wait is None else wait.until, at)
            if wait is None:
                return
            at, node = yield from self._waited(node, wait)

    def _unbegun(self, total_s: float) -> Iterator[Leg]:
        """Yield the parts of a run that ended in a stall before any node ended a round or a wait."""
        if not self._end.roots:
            return
        began = min(self._end.began, total_s)
        yield self._stalled(began, total_s)
        yield from self._busy(min(self._end.roots), 0.0, began)

    def _unfinished(self, ends: Sequence[Moment], total_s: float) -> Iterator[Leg]:
        """Yield the time from the last recorded action of any node to the run's end (`total_s`) as a part of the path.

        `ends` has the time of each node's last action, the latest first.
        """
        last = ends[0][0]
        if total_s <= last:
            return
        if self._end.waiting:
            yield self._stalled(last, total_s)
            return
        rounds = {node: self._history.round_at(node, total_s) for _, node in ends}
        lives = [node for node in rounds if self._history.outage(node, last, total_s + 1) is None or self._back(node)]
        node = min(lives, key=lambda each: (rounds[each], each), default=None)
        lag = 0 if node is None else self._final - rounds[node]
        if node is None or lag < BEHIND:
            yield Leg(TimeUse.END, total_s - last)
        else:
            yield Leg(TimeUse.BEHIND, total_s - last, (node,), self._why_behind(node, total_s), lag)

    def _stalled(self, last: float, total_s: float) -> Leg:
        """Return the time from the last action of any node, `last`, to the end of a run that stalled."""
        out = {node: self._history.outage(node, last, total_s + 1) for node in sorted(self._end.culprits)}
        downs = [(each.begin, node, each.why) for node, each in out.items() if each is not None and each.end >= total_s]
        if not downs:
            return Leg(TimeUse.END, total_s - last, tuple(sorted(self._end.roots)))
        _, node, why = min(downs)
        return Leg(TimeUse.BEHIND, total_s - last, (node,), why)

    def _back(self, node: NodeId) -> bool:
        return self._history.outages[node][-1].end < inf

    def _stragglers(self, ends: Sequence[Moment]) -> Legs[Moment]:
        """Yield the time in which finished nodes waited for nodes several rounds behind.

        `ends` has the time of each node's last action, the latest first. Return the moment and node at which the path
        continues.
        """
        for (end, node), (others, _) in pairwise(ends):
            lag = self._final - self._history.round_at(node, others)
            why = self._why_behind(node, end)
            if lag < BEHIND or why is LagReason.UNKNOWN or node in self._end.waiting:
                return end, node
            yield Leg(TimeUse.BEHIND, end - others, (node,), why, lag)
        return ends[-1]

    # a node is busy

    def _busy(self, node: NodeId, begin: float, end: float) -> Iterator[Leg]:
        """Yield the parts of a time in which `node` waited for no message: training, outages, and anything else."""
        up = begin
        for outage in self._history.outages.get(node, ()):
            first, last = max(outage.begin, up), min(outage.end, end)
            if last > first:
                yield from self._computed(node, up, first)
                yield Leg(TimeUse.BEHIND, last - first, (node,), outage.why)
                up = last
        yield from self._computed(node, up, end)

    def _computed(self, node: NodeId, begin: float, end: float) -> Iterator[Leg]:
        rest = end - begin
        if rest <= 0:
            return
        rounds = self._history.rounds.get(node, ())
        for each in rounds[bisect_right(rounds, begin, key=lambda one: one.end) :]:
            if each.begin >= end:
                break
            trained = self._history.trained(node, each)
            left = self._left.get((node, each), trained)
            took = min(left, min(each.end, end) - max(each.begin, begin))
            if took > 0:
                self._left[node, each] = left - took
                rest -= took
                yield from self._split(node, each.round, took, trained, each.cpu)
        unended = [] if self._ended(node, end) else [self._history.trained(node, each) for each in rounds]
        took = min(rest, median(unended)) if unended else 0.0 if self._history.rounds else rest
        if took > LEAST_S:
            yield Leg(TimeUse.COMPUTE, took)
        if (other := rest - took) > LEAST_S:
            yield from self._held_up(node, begin, end, other)

    def _held_up(self, node: NodeId, begin: float, end: float, other: float) -> Iterator[Leg]:
        """Yield parts for `other` seconds in which `node` neither trained nor waited for a message.

        If another node's process was stopped meanwhile, they count for that node: its full mailbox blocks nodes that
        send to it.
        """
        stands = [
            (seconds, other_node, why)
            for other_node in self._history.outages
            if other_node != node
            for why, seconds in self._history.stops(other_node, begin, end).items()
        ]
        seconds, standing, why = max(stands, default=(0.0, node, LagReason.UNKNOWN))
        if seconds > 0:
            yield Leg(TimeUse.BEHIND, min(seconds, other), (standing,), why)
        if other - seconds > LEAST_S:
            yield Leg(TimeUse.REST, other - seconds)

    def _ended(self, node: NodeId, at: float) -> bool:
        """Return whether `node` finished the round to which its work at the time `at` belongs."""
        rounds = self._history.rounds.get(node, ())
        place = bisect_left(rounds, at, key=lambda each: each.end)
        return place < len(rounds) and rounds[place].begin < at

    def _split(self, node: NodeId, round: int, took: float, trained: float, cpu: float | None) -> Iterator[Leg]:
        """Split `took` seconds of a round's training into their usual part and, if it was long, a wait for a slow node.

        If the processor time `cpu` was not longer than usual, the node had to wait for a processor.
        """
        usual = self._usual[round]
        slow = took * (1 - usual / trained) if trained > SLOW * usual else 0.0
        yield Leg(TimeUse.COMPUTE, took - slow)
        if slow:
            why = LagReason.BUSY if cpu is not None and cpu <= SLOW * usual else LagReason.SLOW
            yield Leg(TimeUse.BEHIND, slow, (node,), why, times=trained / usual)

    # a node waits

    def _waited(self, node: NodeId, wait: TimedWait) -> Legs[Moment]:
        """Yield the causes of a wait of `node`; return the time and node at which the chain of causes continues."""
        src, sent, arrived = wait.last_src, wait.last_sent, wait.arrived
        if wait.ended == WaitEnd.CAME and src is not None and sent is not None and arrived is not None:
            arrived = max(wait.since, min(arrived, wait.until))
            yield from self._busy(node, arrived, wait.until)
            return (yield from self._came(node, wait, src, min(sent, arrived), arrived))
        yield from self._missed(node, wait)
        return wait.since, node

    def _came(self, node: NodeId, wait: TimedWait, src: NodeId, sent: float, arrived: float) -> Legs[Moment]:
        lag = wait.round - self._history.round_at(src, wait.since) if wait.kind == Kind.DATA else 0
        why = self._why_behind(src, arrived)
        if lag >= BEHIND and sent > wait.since and why is not LagReason.UNKNOWN:
            yield from self._on_link(src, node, sent, arrived, wait.kind)
            yield Leg(TimeUse.BEHIND, sent - wait.since, (src,), why, lag)
            return wait.since, node
        is_answer = wait.kind in (Kind.REPLY, Kind.MODEL)
        if id(wait) in self._seen or (is_answer and not self._kept_waiting(src, wait.since, sent)):
            left_at = max(wait.since, sent) if is_answer else None
            yield from self._on_link(src, node, wait.since, arrived, wait.kind, left_at)
            return wait.since, node
        self._seen.add(id(wait))
        first = sent if wait.first_sent is None else min(sent, wait.first_sent)
        outage = self._history.outage(src, first, sent)
        if outage is not None and outage.why is not LagReason.PAUSE:
            first = sent  # an earlier life had sent it
        yield from self._on_link(src, node, sent, arrived, wait.kind)
        if first < sent:
            held = self._history.held(src, first, sent)
            yield from self._paused(src, held)
            yield Leg(TimeUse.RESENDING, sent - first - held, (src,))
        return first, src

    def _paused(self, node: NodeId, seconds: float) -> Iterator[Leg]:
        if seconds > LEAST_S:
            yield Leg(TimeUse.BEHIND, seconds, (node,), LagReason.PAUSE)

    def _on_link(
        self, src: NodeId, dst: NodeId, begin: float, arrived: float, kind: str, left_at: float | None = None
    ) -> Iterator[Leg]:
        """Yield the time of a message of a `kind` on its link from `begin` on; a reply left later, at `left_at`.

        Without times in which the process of sender or receiver was stopped, or in which the message, or the request
        for it, waited for the end of a pause of its receiver.
        """
        sent, usual, left = begin if left_at is None else left_at, self._history.usual_delays, arrived - begin
        asked = min(sent, begin + usual.get((dst, src, Kind.REQUEST), 0.0))
        held = {dst: self._history.held(dst, sent + usual.get((src, dst, kind), 0.0), arrived)}
        held[src] = 0.0 if left_at is None else self._history.held(src, asked, sent)
        for node, seconds in held.items():
            yield from self._paused(node, seconds)
            left -= seconds
        for node in (dst, src):
            for why, seconds in self._history.stops(node, begin, arrived).items():
                stopped = min(left, seconds)
                yield Leg(TimeUse.BEHIND, stopped, (node,), why)
                left -= stopped
        yield Leg(TimeUse.LINKS, left, (src, dst), begin=begin)

    def _kept_waiting(self, asked: NodeId, since: float, replied: float) -> bool:
        """Return whether a node that replied to a request was itself waiting before, at some time after `since`.

        Args:
            asked: the node that got the request.
            since: when the requesting node began to wait for the reply.
            replied: when the reply was sent.
        """
        wait = self._history.last_wait(asked, replied)
        return wait is not None and wait.until > since

    def _missed(self, waiter: NodeId, wait: TimedWait) -> Iterator[Leg]:
        """Yield the parts of a wait that ended without some messages, or by an unrecorded message.

        Where the awaited node was gone but had sent its message, and that was lost, the wait was for a lost message
        until the node's outage began.
        """
        if wait.ended == WaitEnd.CAME:
            yield Leg(TimeUse.LINKS, wait.until - wait.since, begin=wait.since)
            return
        found = {node: self._history.lost.get((waiter, wait.since, node)) for node in wait.missing}
        lost = {node: at for node, at in found.items() if at is not None}
        if not lost:
            yield self._waited_without(waiter, wait)
            return
        begin, end = max(wait.since, min(lost.values())), wait.until
        for node, at in lost.items():
            if (outage := self._history.outage(node, max(at, begin), end)) is not None:
                yield Leg(TimeUse.BEHIND, end - max(outage.begin, begin), (node,), outage.why)
                end = max(outage.begin, begin)
        if begin > wait.since:
            yield self._waited_without(waiter, wait._replace(until=begin))
        yield Leg(TimeUse.LOST, end - begin, tuple(lost), LagReason.GONE)

    def _waited_without(self, waiter: NodeId, wait: TimedWait) -> Leg:
        """Return the part of the path for a wait that ended without some messages, none of which is known as lost."""
        seconds = wait.until - wait.since
        blamed = {node: self._blame(waiter, node, wait) for node in wait.missing}
        if blamed and all(blamed.values()):
            node, (why, lag) = max(
                ((node, found) for node, found in blamed.items() if found is not None), key=lambda item: item[1][1]
            )
            return Leg(TimeUse.BEHIND, seconds, (node,), why, lag, by_deadline=wait.ended == WaitEnd.DEADLINE)
        without = tuple(node for node, found in blamed.items() if found is None)
        return Leg(_WITHOUT.get(wait.ended, TimeUse.LOST), seconds, without)

    def _blame(self, waiter: NodeId, node: NodeId, wait: TimedWait) -> tuple[LagReason, int] | None:
        """Return the reason why `node` sent nothing to `waiter`, and its lag in rounds; None if no reason is known.

        The node was down, or behind since an outage, or the waiter considered it gone, or it had itself considered the
        waiter gone.
        """
        lag = wait.round - self._history.round_at(node, wait.since)
        outage = self._history.longest_outage(node, wait.since, wait.until)
        if outage is not None:
            return outage.why, lag
        why = self._why_behind(node, wait.until)
        if lag >= BEHIND and why is not LagReason.UNKNOWN:
            return why, lag
        went_on = wait.ended in (WaitEnd.LOST, WaitEnd.SKIPPED)
        if went_on and self._history.sent_nothing(node, waiter, wait.round, wait.until):
            return LagReason.SENT_NOTHING, 0
        return (LagReason.GONE, 0) if wait.ended == WaitEnd.GONE else None

    def _why_behind(self, node: NodeId, at: float) -> LagReason:
        """Return the reason for the longest outage of `node` before the time `at`."""
        outages = [each for each in self._history.outages.get(node, ()) if each.end > 0 and each.begin < at]
        return max(outages, key=lambda each: min(each.end, at) - each.begin).why if outages else LagReason.UNKNOWN
