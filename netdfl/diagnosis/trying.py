"""Tries a setting on a snapshot: when each node that waits would go on with it, and when as things are.

A wait ends once enough of what it waits for has come, where all that is missing is left out, or at its deadline. A node
that goes on gives what others await of it. So a setting that ends one stall, and leaves its nodes waiting behind
another one, helps nobody, and neither does one that ends it no sooner than the scenario does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis.reasons import wait_of
from netdfl.diagnosis.reduce import Supply, supply, surely_gone, will_be_gone
from netdfl.diagnosis.snapshot import DOWN, AwaitedFate, Snapshot, State, WaitNow, What

NEVER_NS = 2**63
LATER_NS = NEVER_NS - 1
"""Some time, nobody knows when."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The effects of a setting on waits, as (who waits, for whom).

    `supply` is whether a message can come, None: as without it. `leaves` is when its sender is not waited for any more.
    """

    supply: Callable[[Snapshot, Edge], Supply | None] = lambda snapshot, pair: None
    leaves: Callable[[Snapshot, Edge], int] = lambda snapshot, pair: NEVER_NS


NOTHING = Change()
ENDED = Change(supply=lambda snapshot, pair: _ended(snapshot, *pair))


class Trials:
    """What settings would do for the fleet of one snapshot, each worked out once, when it is asked for."""

    def __init__(self, snapshot: Snapshot, changes: Mapping[str, Change]) -> None:
        """Try `changes`, by their settings."""
        self.snapshot, self.changes = snapshot, changes
        self._ends: dict[str, Mapping[NodeId, int]] = {}

    def helps(self, setting: str, roots: Collection[NodeId], *, ended: bool = False) -> bool:
        """Whether each of `roots`, which wait, goes on sooner with `setting` than as things are.

        `ended`: where all stalls for good are ended, as they are.
        Who has more steps of its round to make has gone on once these are made: nobody may stand still for good.
        """
        before = self._goes_on("ended", ENDED) if ended else self._goes_on("", NOTHING)
        after = self._goes_on(setting, self.changes[setting])
        if any(map(self._has_more_steps, roots)) and max(after.values()) >= NEVER_NS:
            return False
        return all(after[root] < before[root] for root in roots)

    def _has_more_steps(self, node: NodeId) -> bool:
        return wait_of(self.snapshot, node).step + 1 < self.snapshot.nodes[node].steps

    def _goes_on(self, setting: str, change: Change) -> Mapping[NodeId, int]:
        if setting not in self._ends:
            self._ends[setting] = goes_on(self.snapshot, change)
        return self._ends[setting]


def goes_on(snapshot: Snapshot, change: Change = NOTHING) -> dict[NodeId, int]:
    """When each node that waits goes on, with `change`; `NEVER_NS` where it never does."""
    waits, ends = {node: _Open(wait) for node, wait in snapshot.waiting}, dict[NodeId, int]()
    behind: defaultdict[NodeId, list[NodeId]] = defaultdict(list)
    due: list[_Due] = []
    for node, wait in snapshot.waiting:
        due += _due(snapshot, node, wait, change)
        for source in wait.awaited:
            if _supplies(snapshot, node, source, change) is Supply.IF_RELEASED:
                behind[source].append(node)
    heapify(due)
    while due:
        at_ns, node, source, came = heappop(due)
        if node not in ends and waits[node].take(source, came=came):
            ends[node] = at_ns
            for waiter in behind[node]:
                heappush(due, (at_ns, waiter, node, True))
    return dict.fromkeys(waits, NEVER_NS) | ends


_Due: TypeAlias = tuple[int, NodeId, NodeId, bool]
"""When something happens to a wait, whose, and of which source: a message comes, or it is not waited for any more."""
_ENOUGH = -1
"""In place of a source: the wait is over."""


class _Open:
    """An open wait: how many messages it is short of, and who is missing."""

    __slots__ = ("missing", "short")

    def __init__(self, wait: WaitNow) -> None:
        self.short, self.missing = wait.short, set(wait.awaited)

    def take(self, source: NodeId, *, came: bool) -> bool:
        """Take what happens; whether the wait is over then."""
        if source == _ENOUGH:
            return True
        self.short -= came
        self.missing.discard(source)
        return self.short <= 0 or not self.missing


def _due(snapshot: Snapshot, node: NodeId, wait: WaitNow, change: Change) -> Iterator[_Due]:
    """All that happens to a wait, but for what others give once they go on."""
    if wait.short <= 0 or not wait.awaited:
        yield snapshot.at_ns, node, _ENOUGH, True
    if wait.deadline_ns is not None:
        yield wait.deadline_ns, node, _ENOUGH, True
    sure, gone = surely_gone(snapshot, node, wait), will_be_gone(snapshot, node, wait)
    for source in wait.awaited:
        may_ns = snapshot.at_ns if source in sure else LATER_NS if source in gone else NEVER_NS
        left_ns = min(may_ns, change.leaves(snapshot, (node, source)))
        if left_ns < NEVER_NS:
            yield left_ns, node, source, False
        if _supplies(snapshot, node, source, change) is Supply.SURE:
            yield _comes_ns(snapshot, node, wait, source), node, source, True


def _supplies(snapshot: Snapshot, node: NodeId, source: NodeId, change: Change) -> Supply:
    changed = change.supply(snapshot, (node, source))
    return _supply(snapshot, node, source) if changed is None else changed


def _supply(snapshot: Snapshot, node: NodeId, source: NodeId) -> Supply:
    """Whether a message can come. One of which each copy is lost can't, however often it is sent again.

    Nor does one that was not sent by a node that returns without its state: it begins in a later round.
    """
    wait, giver = wait_of(snapshot, node), snapshot.nodes[source]
    awaited = wait.awaited[source]
    in_vain = awaited.in_vain and (awaited.resent or awaited.fate is AwaitedFate.UNSENT)
    by_round = wait.what is What.MESSAGE and not wait.cumulative and awaited.fate is AwaitedFate.UNSENT
    skipped = by_round and giver.state is State.CRASHED and not giver.keeps
    return Supply.NEVER if in_vain or skipped else supply(snapshot, node, wait, source)


def _ended(snapshot: Snapshot, node: NodeId, source: NodeId) -> Supply | None:
    """Who waits itself gives what is awaited of it."""
    return Supply.SURE if _supply(snapshot, node, source) is Supply.IF_RELEASED else None


def _comes_ns(snapshot: Snapshot, node: NodeId, wait: WaitNow, source: NodeId) -> int:
    """When a message comes that is sure to: now, or once its sender and its link are there again."""
    return max((snapshot.at_ns, *_outages(snapshot, node, wait, source)))


def _outages(snapshot: Snapshot, node: NodeId, wait: WaitNow, source: NodeId) -> Iterator[int]:
    giver, edge = snapshot.nodes[source], snapshot.edge(*(wait.awaited[source].edge or (source, node)))
    if giver.state is State.BLOCKED:
        yield LATER_NS
    if giver.state in DOWN and giver.back_ns is not None:
        yield giver.back_ns
    if edge.heals_ns is not None:
        yield edge.heals_ns
