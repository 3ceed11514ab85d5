"""Graph reduction: who can never go on, for AND, OR and k-of-n waits by one rule.

A node is released where enough of what it waits for can still come: from a running node, a message
in flight, a timer, a scheduled heal, or a node that is itself released. What is left is stuck. Each
edge of the wait-for graph is looked at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from enum import Enum

from netdfl.core.types import NodeId
from netdfl.diagnosis.snapshot import DOWN, Awaited, AwaitedFate, NodeNow, Snapshot, State, WaitNow, What


class Supply(Enum):
    """Whether an awaited node can still give what is awaited of it: yes, once it is released, or never."""

    SURE = "sure"
    IF_RELEASED = "if_released"
    NEVER = "never"


def supply(snapshot: Snapshot, waiter: NodeId, wait: WaitNow, source: NodeId) -> Supply:
    """Whether `source` can still give `waiter` what it waits for."""
    awaited, giver = wait.awaited[source], snapshot.nodes[source]
    edge = snapshot.edge(*(awaited.edge or (source, waiter)))
    cut_for_good = not edge.up and edge.heals_ns is None and wait.what is not What.ROOM
    if awaited.fate is AwaitedFate.IN_FLIGHT:
        return Supply.SURE
    if awaited.fate is AwaitedFate.HELD:
        return Supply.NEVER if cut_for_good else Supply.SURE
    lost = awaited.fate is AwaitedFate.LOST and not (awaited.resent or awaited.replaced)
    if awaited.fate in (AwaitedFate.NEVER, AwaitedFate.MISSED) or lost or cut_for_good:
        return Supply.NEVER
    return _from_state(giver, awaited)


def _from_state(giver: NodeNow, awaited: Awaited) -> Supply:
    if giver.state in (State.RUNNING, State.FETCHING, State.BLOCKED):
        return Supply.SURE
    if giver.state in DOWN:
        return Supply.NEVER if giver.is_down_for_good else Supply.SURE
    if awaited.fate is AwaitedFate.LOST and awaited.resent:
        return Supply.SURE
    return Supply.NEVER if giver.state is State.FINISHED else Supply.IF_RELEASED


def supplies(snapshot: Snapshot, waiter: NodeId, wait: WaitNow) -> dict[NodeId, Supply]:
    """`supply` of each awaited node that has not come."""
    return {source: supply(snapshot, waiter, wait, source) for source in wait.awaited}


def will_be_gone(snapshot: Snapshot, waiter: NodeId, wait: WaitNow) -> frozenset[NodeId]:
    """Awaited nodes that the failure detector calls gone, or will, or may: nothing is heard from them any more."""
    if wait.essential or wait.from_anybody:
        return frozenset()
    gone = surely_gone(snapshot, waiter, wait)
    return gone | wait.undecided if snapshot.detector == "heartbeat" else gone


def surely_gone(snapshot: Snapshot, waiter: NodeId, wait: WaitNow) -> frozenset[NodeId]:
    """Those of them of which it is no matter of chance."""
    if wait.essential or wait.from_anybody:
        return frozenset()
    if snapshot.detector == "none":
        return wait.gone
    ending = {n for n in wait.awaited if snapshot.nodes[n].ends_ns is not None}
    if snapshot.detector == "oracle":
        return wait.gone | ending
    silent = {n for n in wait.awaited if snapshot.nodes[n].state in (State.CRASHED, State.PAUSED)}
    cut = {n for n in wait.awaited if not snapshot.edge(n, waiter).up}
    return wait.gone | ending | silent | cut


class _Counters:
    """What one waiting node still lacks: `short` of any awaited, or all that are not gone."""

    __slots__ = ("gone", "missing", "short")

    def __init__(self, snapshot: Snapshot, waiter: NodeId, wait: WaitNow, *, by_chance: bool = True) -> None:
        self.gone = (will_be_gone if by_chance else surely_gone)(snapshot, waiter, wait)
        self.short, self.missing = wait.short, len(frozenset(wait.awaited) - self.gone)

    def take(self, source: NodeId) -> bool:
        """Count `source` as supplied; True where the wait can end now."""
        self.short -= 1
        self.missing -= source not in self.gone
        return self.released

    @property
    def released(self) -> bool:
        return self.short <= 0 or self.missing <= 0


def hopeless(snapshot: Snapshot, waiter: NodeId, *, by_chance: bool = True) -> bool:
    """Whether `waiter` stays stuck even where every other node goes on: a root that is no cycle.

    Not so `by_chance` is who may yet be ended by a failure detector that errs.
    """
    wait = snapshot.nodes[waiter].wait
    if wait is None or wait.deadline_ns is not None:
        return False
    counters = _Counters(snapshot, waiter, wait, by_chance=by_chance)
    for source, given in supplies(snapshot, waiter, wait).items():
        if given is not Supply.NEVER:
            counters.take(source)
    return not counters.released


def reduce(snapshot: Snapshot, freed: Collection[NodeId] = ()) -> frozenset[NodeId]:
    """The nodes that can never go on, taking those in `freed` as released."""
    behind: defaultdict[NodeId, list[NodeId]] = defaultdict(list)
    counters: dict[NodeId, _Counters] = {}
    ready = list(freed)
    for node, wait in snapshot.waiting:
        if node in freed:
            continue
        counters[node] = own = _Counters(snapshot, node, wait)
        for source, given in supplies(snapshot, node, wait).items():
            if given is Supply.SURE:
                own.take(source)
            elif given is Supply.IF_RELEASED:
                behind[source].append(node)
        if own.released or wait.deadline_ns is not None:
            ready.append(node)
    return _spread(ready, behind, counters)


def _spread(
    ready: list[NodeId], behind: Mapping[NodeId, list[NodeId]], counters: Mapping[NodeId, _Counters]
) -> frozenset[NodeId]:
    """Release what follows from the nodes that are `ready`; what is left is stuck."""
    released = set(ready)
    while ready:
        node = ready.pop()
        for waiter in behind.get(node, ()):
            if waiter not in released and counters[waiter].take(node):
                released.add(waiter)
                ready.append(waiter)
    return frozenset(counters) - released
