"""Reduction of the wait-for graph: finds nodes that can never continue, for waits for all, any or k of n messages.

A node is released if enough of its awaited messages can still come: from a running node, a message in flight, a timer,
a scheduled heal, or a node that is itself released. All other nodes are stuck. Each edge of the wait-for graph is
looked at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from enum import Enum

from netdfl.core.types import NodeId
from netdfl.diagnosis.snapshot import (
    AWAY,
    DOWN,
    AwaitedFate,
    AwaitedMessage,
    NodeNow,
    Snapshot,
    State,
    WaitKind,
    WaitNow,
)


class Supply(Enum):
    """The ability of an awaited node to still send the message that a waiting node needs.

    `SURE`: it will. `IF_RELEASED`: it will if its own wait ends. `NEVER`: it won't.
    """

    SURE = "sure"
    IF_RELEASED = "if_released"
    NEVER = "never"


def supply(snapshot: Snapshot, waiter: NodeId, wait: WaitNow, source: NodeId) -> Supply:
    """Return whether `source` can still send the message for which `waiter` waits."""
    awaited, giver = wait.awaited[source], snapshot.nodes[source]
    edge = snapshot.edge(*(awaited.edge or (source, waiter)))
    cut_for_good = not edge.up and edge.heals_ns is None and wait.what is not WaitKind.ROOM
    if awaited.fate is AwaitedFate.IN_FLIGHT:
        return Supply.SURE
    if awaited.fate is AwaitedFate.HELD:
        return Supply.NEVER if cut_for_good else Supply.SURE
    lost = awaited.fate is AwaitedFate.LOST and not (awaited.may_come_again or awaited.replaced)
    if awaited.fate in (AwaitedFate.NEVER, AwaitedFate.MISSED) or lost or cut_for_good:
        return Supply.NEVER
    return _from_state(giver, awaited)


def _from_state(giver: NodeNow, awaited: AwaitedMessage) -> Supply:
    if giver.state in (State.RUNNING, State.FETCHING, State.BLOCKED):
        return Supply.SURE
    if giver.state in DOWN:
        return Supply.NEVER if giver.is_down_for_good else Supply.SURE
    if awaited.fate is AwaitedFate.LOST and awaited.resent:
        return Supply.SURE
    return Supply.NEVER if giver.state is State.FINISHED else Supply.IF_RELEASED


def supplies(snapshot: Snapshot, waiter: NodeId, wait: WaitNow) -> dict[NodeId, Supply]:
    """Return, for each node from which `waiter` awaits a message, whether it can still send the message."""
    return {source: supply(snapshot, waiter, wait, source) for source in wait.awaited}


def will_be_gone(snapshot: Snapshot, waiter: NodeId, wait: WaitNow) -> frozenset[NodeId]:
    """Return the awaited nodes that the failure detector calls gone, will call gone, or may call gone by error."""
    if wait.essential or wait.from_anybody:
        return frozenset()
    gone = surely_gone(snapshot, waiter, wait)
    by_chance = snapshot.detector == "heartbeat" and wait.what is not WaitKind.ROOM
    return gone | wait.undecided if by_chance else gone


def surely_gone(snapshot: Snapshot, waiter: NodeId, wait: WaitNow) -> frozenset[NodeId]:
    """Return the awaited nodes that the failure detector calls gone, or certainly will."""
    if wait.essential or wait.from_anybody:
        return frozenset()
    ending = frozenset(n for n in wait.awaited if snapshot.nodes[n].ends_ns is not None)
    if wait.what is WaitKind.ROOM:  # a node that is called gone makes no room; a node that ends does
        return ending
    if snapshot.detector == "none":
        return wait.gone
    if snapshot.detector == "oracle":
        return wait.gone | ending
    silent = {n for n in wait.awaited if snapshot.nodes[n].state in (*AWAY, State.PAUSED)}
    cut = {n for n in wait.awaited if not snapshot.edge(n, waiter).up}
    return wait.gone | ending | silent | cut


class _Counters:
    """The number of messages that a waiting node still lacks.

    `short` are those that it needs, `missing` all that may come from nodes not called gone. A node that does not know
    its senders lacks as many messages as it waits for, even if no node is left to send one.
    """

    __slots__ = ("from_anybody", "gone", "missing", "short")

    def __init__(self, snapshot: Snapshot, waiter: NodeId, wait: WaitNow, *, by_chance: bool = True) -> None:
        self.gone = (will_be_gone if by_chance else surely_gone)(snapshot, waiter, wait)
        self.short, self.missing = wait.short, len(frozenset(wait.awaited) - self.gone)
        self.from_anybody = wait.from_anybody

    def take(self, source: NodeId) -> bool:
        """Count the message of `source` as received; return whether the wait can end now."""
        self.short -= 1
        self.missing -= source not in self.gone
        return self.released

    @property
    def released(self) -> bool:
        return self.short <= 0 or (self.missing <= 0 and not self.from_anybody)


def hopeless(snapshot: Snapshot, waiter: NodeId, *, by_chance: bool = True) -> bool:
    """Return whether the wait of `waiter` would never end even if all other nodes continued.

    With `by_chance`, a failure detector may also end the wait by calling an awaited node gone by error.
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
    """Return the waiting nodes that can never continue, on the assumption that the nodes in `freed` continue."""
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
    """Release nodes whose waits end by messages of `ready` nodes, then of released ones.

    Return the other, stuck nodes.
    """
    released = set(ready)
    while ready:
        node = ready.pop()
        for waiter in behind.get(node, ()):
            if waiter not in released and counters[waiter].take(node):
                released.add(waiter)
                ready.append(waiter)
    return frozenset(counters) - released
