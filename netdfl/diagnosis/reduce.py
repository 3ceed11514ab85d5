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


class PendingWait:
    """A wait that has not ended: the number of messages that it lacks (`short`), and the nodes that may send them.

    The wait is over once it lacks no message, or no such node is left. But if the waiting node does not know its
    senders (`lasts`), the wait is not over when no node is left, unless a setting has left some of them out.
    """

    __slots__ = ("lasts", "missing", "short")

    def __init__(self, wait: WaitNow, gone: Collection[NodeId] = ()) -> None:
        self.short, self.missing, self.lasts = wait.short, set(wait.awaited).difference(gone), wait.from_anybody

    def take(self, source: NodeId, *, came: bool = True) -> bool:
        """Remove the awaited node `source` from the wait; return whether the wait is over then.

        `came`: the message of `source` came; else the node no longer waits for it.
        """
        self.short -= came
        self.missing.discard(source)
        self.lasts = self.lasts and came
        return self.is_over

    @property
    def is_over(self) -> bool:
        """Whether the wait has ended."""
        return self.short <= 0 or not (self.missing or self.lasts)


def hopeless(snapshot: Snapshot, waiter: NodeId, *, by_chance: bool = True) -> bool:
    """Return whether the wait of `waiter` would never end even if all other nodes continued.

    With `by_chance`, a failure detector may also end the wait by calling an awaited node gone by error.
    """
    wait = snapshot.nodes[waiter].wait
    if wait is None or wait.deadline_ns is not None:
        return False
    pending = PendingWait(wait, (will_be_gone if by_chance else surely_gone)(snapshot, waiter, wait))
    for source, given in supplies(snapshot, waiter, wait).items():
        if given is not Supply.NEVER:
            pending.take(source)
    return not pending.is_over


def reduce(snapshot: Snapshot, freed: Collection[NodeId] = ()) -> frozenset[NodeId]:
    """Return the waiting nodes that can never continue, if the nodes in `freed` are assumed to continue."""
    behind: defaultdict[NodeId, list[NodeId]] = defaultdict(list)
    waits: dict[NodeId, PendingWait] = {}
    ready = list(freed)
    for node, wait in snapshot.waiting:
        if node in freed:
            continue
        waits[node] = own = PendingWait(wait, will_be_gone(snapshot, node, wait))
        for source, given in supplies(snapshot, node, wait).items():
            if given is Supply.SURE:
                own.take(source)
            elif given is Supply.IF_RELEASED:
                behind[source].append(node)
        if own.is_over or wait.deadline_ns is not None:
            ready.append(node)
    return _spread(ready, behind, waits)


def _spread(
    ready: list[NodeId], behind: Mapping[NodeId, list[NodeId]], waits: Mapping[NodeId, PendingWait]
) -> frozenset[NodeId]:
    """Release nodes whose waits end by messages of `ready` nodes, then of released ones.

    Return the other, stuck nodes.
    """
    released = set(ready)
    while ready:
        node = ready.pop()
        for waiter in behind.get(node, ()):
            if waiter not in released and waits[waiter].take(node):
                released.add(waiter)
                ready.append(waiter)
    return frozenset(waits) - released
