"""Trials of settings on a snapshot: when would each waiting node continue, with and without a setting.

A wait ends when enough messages have come, when all missing sources are left out, or at its deadline. A node that goes
on sends the messages that others await of it, which may end their waits. So a trial computes when each wait of the
fleet would end, in order of time. A setting helps only if it ends a stall sooner than the scenario does, and does not
leave the nodes waiting behind another stall.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis.reasons import wait_of
from netdfl.diagnosis.reduce import PendingWait, Supply, supply, surely_gone, will_be_gone
from netdfl.diagnosis.snapshot import AWAY, DOWN, AwaitedFate, Snapshot, State, WaitKind, WaitNow

NEVER_NS = 2**63
LATER_NS = NEVER_NS - 1
"""A value in place of the time of an event that will happen, but at an unknown time."""


@dataclass(frozen=True, kw_only=True)
class SettingEffect:
    """The effect that a setting of the scenario would have on waits, each given as (waiting node, awaited node).

    Attributes:
        supply: returns whether the message would come with the setting; None: as without it.
        leaves: returns when the waiter would stop waiting for the source; `NEVER_NS`: as without the setting.
    """

    supply: Callable[[Snapshot, Edge], Supply | None] = lambda snapshot, pair: None
    leaves: Callable[[Snapshot, Edge], int] = lambda snapshot, pair: NEVER_NS


NOTHING = SettingEffect()
ENDED = SettingEffect(supply=lambda snapshot, pair: _ended(snapshot, *pair))


class Trials:
    """Trials of a scenario's settings on a snapshot of a stalled fleet, which show whether they end a stall sooner."""

    def __init__(self, snapshot: Snapshot, changes: Mapping[str, SettingEffect]) -> None:
        """Prepare to try settings on `snapshot`; `changes` has the effect of each setting on waits."""
        self.snapshot, self.changes = snapshot, changes
        self._ends: dict[str, Mapping[NodeId, int]] = {}

    def helps(self, setting: str, roots: Collection[NodeId], *, ended: bool = False) -> bool:
        """Return whether each of the waiting `roots` continues sooner with `setting` than without it.

        `ended`: compare with a run in which the scenario ends permanent stalls. If a root has more steps of its round
        to make, no node may stay stuck with the setting, because the root would wait for that node in a later step.
        """
        before = self._goes_on("ended", ENDED) if ended else self._goes_on("", NOTHING)
        after = self._goes_on(setting, self.changes[setting])
        if any(map(self._has_more_steps, roots)) and max(after.values()) >= NEVER_NS:
            return False
        return all(after[root] < before[root] for root in roots)

    def _has_more_steps(self, node: NodeId) -> bool:
        return wait_of(self.snapshot, node).step + 1 < self.snapshot.nodes[node].steps

    def _goes_on(self, setting: str, change: SettingEffect) -> Mapping[NodeId, int]:
        if setting not in self._ends:
            self._ends[setting] = goes_on(self.snapshot, change)
        return self._ends[setting]


def goes_on(snapshot: Snapshot, change: SettingEffect = NOTHING) -> dict[NodeId, int]:
    """Return when each waiting node of `snapshot` continues under a setting with the effect `change`, or `NEVER_NS`."""
    waits, ends = {node: PendingWait(wait) for node, wait in snapshot.waiting}, dict[NodeId, int]()
    behind: defaultdict[NodeId, list[NodeId]] = defaultdict(list)
    due: list[_WaitEvent] = []
    for node, wait in snapshot.waiting:
        due += _due(snapshot, node, wait, change)
        for source in wait.awaited:
            if _supplies(snapshot, node, source, change) is Supply.IF_RELEASED:
                behind[source].append(node)
    heapify(due)
    while due:
        at_ns, node, source, came = heappop(due)
        if node not in ends and (source == _ENOUGH or waits[node].take(source, came=came)):
            ends[node] = at_ns
            for waiter in behind[node]:
                heappush(due, (at_ns, waiter, node, True))
    return dict.fromkeys(waits, NEVER_NS) | ends


_WaitEvent: TypeAlias = tuple[int, NodeId, NodeId, bool]
"""An event in a trial: time, waiting node, awaited node, and whether the awaited message comes or is given up."""
_ENOUGH = -1
"""A value in place of an awaited node in an event that ends the whole wait."""


def _due(snapshot: Snapshot, node: NodeId, wait: WaitNow, change: SettingEffect) -> Iterator[_WaitEvent]:
    """Yield the events that can end a wait, except for messages of nodes that must first continue themselves.

    `change` is the effect of the setting that is tried.
    """
    if wait.short <= 0 or not (wait.awaited or wait.from_anybody):
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


def _supplies(snapshot: Snapshot, node: NodeId, source: NodeId, change: SettingEffect) -> Supply:
    changed = change.supply(snapshot, (node, source))
    return _supply(snapshot, node, source) if changed is None else changed


def _supply(snapshot: Snapshot, node: NodeId, source: NodeId) -> Supply:
    """Return whether the message of `source` for `node` can come; it can't if all its copies would be lost.

    Nor can an unsent message come from a node that returns without its state, because such a node begins in a later
    round.
    """
    wait, giver = wait_of(snapshot, node), snapshot.nodes[source]
    awaited = wait.awaited[source]
    in_vain = awaited.in_vain and (awaited.resent or awaited.fate is AwaitedFate.UNSENT)
    by_round = wait.what is WaitKind.MESSAGE and not wait.cumulative and awaited.fate is AwaitedFate.UNSENT
    skipped = by_round and giver.state in AWAY and not giver.keeps
    return Supply.NEVER if in_vain or skipped else supply(snapshot, node, wait, source)


def _ended(snapshot: Snapshot, node: NodeId, source: NodeId) -> Supply | None:
    """Return whether `source` would send the message for which `node` waits if all permanent stalls were ended.

    `Supply.SURE`: it would, because only a wait of its own keeps `source` from sending. None: that changes nothing.
    """
    return Supply.SURE if _supply(snapshot, node, source) is Supply.IF_RELEASED else None


def _comes_ns(snapshot: Snapshot, node: NodeId, wait: WaitNow, source: NodeId) -> int:
    """Return when a message that surely comes can come at the earliest: now, or after outages of sender and link."""
    return max((snapshot.at_ns, *_outages(snapshot, node, wait, source)))


def _outages(snapshot: Snapshot, node: NodeId, wait: WaitNow, source: NodeId) -> Iterator[int]:
    giver, awaited = snapshot.nodes[source], wait.awaited[source]
    edge = snapshot.edge(*(awaited.edge or (source, node)))
    if giver.state is State.BLOCKED:
        yield LATER_NS
    if giver.state in DOWN and giver.back_ns is not None:
        yield giver.back_ns
    if edge.heals_ns is not None:
        yield edge.heals_ns
    if awaited.passes_ns is not None:
        yield awaited.passes_ns
