"""The critical path of a run: a chain of causes from the end of the last node back to the start.

A node is busy, or waits. Where its wait ended with a message, the chain goes on at the sender, at the time when that
message left; where it ended by a deadline, or for a node that was rounds behind since it was down or paused, at the
beginning of the wait. So every moment of the run is counted once, under what the fleet spent it on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from math import inf
from statistics import median
from typing import NamedTuple, TypeAlias, TypeVar

from netdfl.core.types import Kind, NodeId
from netdfl.record.base import Ended
from netdfl.record.history import EndedRound, History, Waiting, Why

T = TypeVar("T")
BEHIND = 2
"""Rounds by which a sender must be behind its receiver to count as behind: one is usual between neighbors."""
LEAST_S = 1e-9
"""Less than the record's resolution is nothing."""
SLOW = 2.0
"""A local round of more than so many times the median of its round counts, beyond that, as a wait for a slow node."""


class TimeUse(StrEnum):
    """What a part of the run's time was spent on."""

    COMPUTE = "compute"
    LINKS = "links"
    RESENDING = "resending"
    DEADLINES = "deadlines"
    LOST = "lost"
    BEHIND = "behind"
    REST = "rest"
    END = "end"


class Leg(NamedTuple):
    """A part of the path. `nodes` are waited for, or their messages are.

    `rounds` is how far behind they were, `times` how many times the usual time their training took. `begin` is when a
    part on links began.
    """

    cause: TimeUse
    seconds: float
    nodes: tuple[NodeId, ...] = ()
    why: Why = Why.UNKNOWN
    rounds: int = 0
    by_deadline: bool = False
    times: float = 1.0
    begin: float = 0.0


Legs: TypeAlias = Generator[Leg, None, T]
Moment: TypeAlias = tuple[float, NodeId]


def critical_path(history: History, total_s: float) -> list[Leg]:
    """The parts of the path from the end back to the start; their seconds add up to `total_s`, or what was recorded.

    What is not known of a round that was never ended counts as training up to what the node's rounds usually took.
    """
    return list(_Walk(history).legs(total_s))


class _Walk:
    def __init__(self, history: History) -> None:
        self._history = history
        self._final = max((rounds[-1].round + 1 for rounds in history.rounds.values() if rounds), default=0)
        self._left: dict[tuple[NodeId, EndedRound], float] = {}
        self._seen: set[int] = set()

    @cached_property
    def _usual(self) -> dict[int, float]:
        return self._history.usual()

    def legs(self, total_s: float) -> Iterator[Leg]:
        """The path, the last part first."""
        ends = self._history.ends()
        if not ends:
            return
        yield from self._unfinished(ends, total_s)
        at, node = yield from self._stragglers(ends)
        while at > 0:
            wait = self._history.last_wait(node, at)
            yield from self._busy(node, 0.0 if wait is None else wait.until, at)
            if wait is None:
                return
            at, node = yield from self._waited(node, wait)

    def _unfinished(self, ends: Sequence[Moment], total_s: float) -> Iterator[Leg]:
        """From the last that any node is known to have done to the end of the run: who could still have gone on?"""
        last = ends[0][0]
        if total_s <= last:
            return
        rounds = {node: self._history.round_at(node, total_s) for _, node in ends}
        lives = [node for node in rounds if self._history.outage(node, last, total_s + 1) is None or self._back(node)]
        node = min(lives, key=lambda each: (rounds[each], each), default=None)
        lag = 0 if node is None else self._final - rounds[node]
        if node is None or lag < BEHIND:
            yield Leg(TimeUse.END, total_s - last)
        else:
            yield Leg(TimeUse.BEHIND, total_s - last, (node,), self._why_behind(node, total_s), lag)

    def _back(self, node: NodeId) -> bool:
        return self._history.outages[node][-1].end < inf

    def _stragglers(self, ends: Sequence[Moment]) -> Legs[Moment]:
        """Nodes that were rounds behind when the others had ended: the fleet waits for them as a node would."""
        for (end, node), (others, _) in pairwise(ends):
            lag = self._final - self._history.round_at(node, others)
            why = self._why_behind(node, end)
            if lag < BEHIND or why is Why.UNKNOWN:
                return end, node
            yield Leg(TimeUse.BEHIND, end - others, (node,), why, lag)
        return ends[-1]

    # a node is busy

    def _busy(self, node: NodeId, begin: float, end: float) -> Iterator[Leg]:
        """What `node` did in a time in which it waited for nobody; it may have been down for a part of it."""
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
        took = min(rest, median(unended)) if unended else 0.0
        if took > LEAST_S:
            yield Leg(TimeUse.COMPUTE, took)
        if (other := rest - took) > LEAST_S:
            yield from self._held_up(node, begin, end, other)

    def _held_up(self, node: NodeId, begin: float, end: float, other: float) -> Iterator[Leg]:
        """A time in which `node` neither trained nor waited for a message.

        While another process stands still that is its doing: its mailbox is full, so that no send to it ends.
        """
        stands = [
            (seconds, other_node, why)
            for other_node in self._history.outages
            if other_node != node
            for why, seconds in self._history.stops(other_node, begin, end).items()
        ]
        seconds, standing, why = max(stands, default=(0.0, node, Why.UNKNOWN))
        if seconds > 0:
            yield Leg(TimeUse.BEHIND, min(seconds, other), (standing,), why)
        if other - seconds > LEAST_S:
            yield Leg(TimeUse.REST, other - seconds)

    def _ended(self, node: NodeId, at: float) -> bool:
        """Whether what `node` did up to then belongs to a round that it ended."""
        rounds = self._history.rounds.get(node, ())
        place = bisect_left(rounds, at, key=lambda each: each.end)
        return place < len(rounds) and rounds[place].begin < at

    def _split(self, node: NodeId, round: int, took: float, trained: float, cpu: float | None) -> Iterator[Leg]:
        """Training that took several times the usual is a wait for a slow node, but for the usual part.

        Where a processor was at it for no longer than usual, it waited for one: that is none of the node's.
        """
        usual = self._usual[round]
        slow = took * (1 - usual / trained) if trained > SLOW * usual else 0.0
        yield Leg(TimeUse.COMPUTE, took - slow)
        if slow:
            why = Why.BUSY if cpu is not None and cpu <= SLOW * usual else Why.SLOW
            yield Leg(TimeUse.BEHIND, slow, (node,), why, times=trained / usual)

    # a node waits

    def _waited(self, node: NodeId, wait: Waiting) -> Legs[Moment]:
        """Say what a wait of `node` was for; return where and when the chain goes on."""
        src, sent, arrived = wait.last_src, wait.last_sent, wait.arrived
        if wait.ended == Ended.CAME and src is not None and sent is not None and arrived is not None:
            arrived = max(wait.since, min(arrived, wait.until))
            yield from self._busy(node, arrived, wait.until)
            return (yield from self._came(node, wait, src, min(sent, arrived), arrived))
        yield self._missed(node, wait)
        return wait.since, node

    def _came(self, node: NodeId, wait: Waiting, src: NodeId, sent: float, arrived: float) -> Legs[Moment]:
        lag = wait.round - self._history.round_at(src, wait.since) if wait.kind == Kind.DATA else 0
        why = self._why_behind(src, arrived)
        if lag >= BEHIND and sent > wait.since and why is not Why.UNKNOWN:
            yield from self._on_link(src, node, sent, arrived)
            yield Leg(TimeUse.BEHIND, sent - wait.since, (src,), why, lag)
            return wait.since, node
        if id(wait) in self._seen or (wait.kind == Kind.REPLY and not self._kept_waiting(src, wait.since, sent)):
            yield from self._on_link(src, node, wait.since, arrived)
            return wait.since, node
        self._seen.add(id(wait))
        first = sent if wait.first_sent is None else min(sent, wait.first_sent)
        if self._history.outage(src, first, sent) is not None:
            first = sent  # an earlier life had sent it
        yield from self._on_link(src, node, sent, arrived)
        if first < sent:
            yield Leg(TimeUse.RESENDING, sent - first, (src,))
        return first, src

    def _on_link(self, src: NodeId, dst: NodeId, sent: float, arrived: float) -> Iterator[Leg]:
        """A message's way; while a process at one of its ends does not run, it lies there."""
        left = arrived - sent
        for node in (dst, src):
            for why, seconds in self._history.stops(node, sent, arrived).items():
                stopped = min(left, seconds)
                yield Leg(TimeUse.BEHIND, stopped, (node,), why)
                left -= stopped
        yield Leg(TimeUse.LINKS, left, begin=sent)

    def _kept_waiting(self, asked: NodeId, since: float, replied: float) -> bool:
        """Whether who was asked waited itself before it replied."""
        wait = self._history.last_wait(asked, replied)
        return wait is not None and wait.until > since

    def _missed(self, waiter: NodeId, wait: Waiting) -> Leg:
        """A wait of `waiter` that ended without messages of some nodes, or with what nobody recorded."""
        seconds = wait.until - wait.since
        if wait.ended == Ended.CAME:
            return Leg(TimeUse.LINKS, seconds, begin=wait.since)
        blamed = {node: self._blame(waiter, node, wait) for node in wait.missing}
        if blamed and all(blamed.values()):
            node, (why, lag) = max(
                ((node, found) for node, found in blamed.items() if found is not None), key=lambda item: item[1][1]
            )
            return Leg(TimeUse.BEHIND, seconds, (node,), why, lag, by_deadline=wait.ended == Ended.DEADLINE)
        without = tuple(node for node, found in blamed.items() if found is None)
        return Leg(TimeUse.DEADLINES if wait.ended == Ended.DEADLINE else TimeUse.LOST, seconds, without)

    def _blame(self, waiter: NodeId, node: NodeId, wait: Waiting) -> tuple[Why, int] | None:
        """Why nothing could come of `node` to `waiter`; None: something could.

        It was down, or behind since then, or taken for gone, or had itself taken the waiter for gone.
        """
        lag = wait.round - self._history.round_at(node, wait.since)
        outage = self._history.longest_outage(node, wait.since, wait.until)
        if outage is not None:
            return outage.why, lag
        why = self._why_behind(node, wait.until)
        if lag >= BEHIND and why is not Why.UNKNOWN:
            return why, lag
        if wait.ended == Ended.LOST and self._history.sent_nothing(node, waiter, wait.round, wait.until):
            return Why.SENT_NOTHING, 0
        return (Why.GONE, 0) if wait.ended == Ended.GONE else None

    def _why_behind(self, node: NodeId, at: float) -> Why:
        """Why `node` is behind: by the outage that took it longest."""
        outages = [each for each in self._history.outages.get(node, ()) if each.end > 0 and each.begin < at]
        return max(outages, key=lambda each: min(each.end, at) - each.begin).why if outages else Why.UNKNOWN
