"""Distributed deadlock detection: nodes find deadlocks by probes between them, without a supervisor.

The algorithms are from Chandy, Misra and Haas, "Distributed Deadlock Detection" (ACM TOCS 1983): edge chasing for AND
waits, and a diffusing computation for OR waits. The detectors do no I/O: each takes a probe and returns the probes to
send. A probe proves something only while its receiver waits without interruption, so a detector forgets all probes when
its node's wait changes. Of each initiator a detector remembers only the latest computation, as the paper has it, so
that a node that sends ever new numbers does not fill its memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

from netdfl.core.types import NodeId

T = TypeVar("T")
WaitPath: TypeAlias = tuple[tuple[NodeId, int], ...]


class EdgeChasingProbe(NamedTuple):
    """A message of deadlock detection from `src` to `dst`.

    Attributes:
        kind: `probe` of edge chasing, `query` and `reply` of diffusing computations, or `sent`, the answer that `src`
            has sent the message that `dst` awaits.
        initiator: the node that began the computation.
        number: the initiator's number of the computation.
        src: the sender.
        dst: the receiver.
        path: the nodes that have passed the probe on, each with the round in which it waits.
    """

    kind: Literal["probe", "query", "reply", "sent"]
    initiator: NodeId
    number: int
    src: NodeId
    dst: NodeId
    path: WaitPath = ()


Computation: TypeAlias = tuple[NodeId, int]
"""A detection: the node that began it, and the number that this node gave it. It replaces the node's earlier ones."""


@dataclass
class _Detector(Generic[T]):
    """The part that both detectors of a node have in common: the node's wait, and its own and other nodes' detections.

    `_latest` has a value of the type `T` about the latest detection of each initiator.
    """

    node: NodeId
    deadlocked: bool = False
    members: WaitPath = ()
    _waits_for: tuple[NodeId, ...] = ()
    _number: int = 0
    _latest: dict[NodeId, T] = field(default_factory=dict)

    def wait(self, sources: Collection[NodeId]) -> None:
        """Set the nodes for which this node waits; an empty collection: it does not wait."""
        self._waits_for = tuple(sorted(sources))
        self._latest.clear()
        self.deadlocked = False

    def _prove(self, number: int, members: WaitPath) -> None:
        """Record that this node's detection `number` ended with the nodes `members`: a proof if it is the latest."""
        self.deadlocked = self.deadlocked or number == self._number
        self.members = members


class AndDetector(_Detector[int]):
    """Deadlock detection of a node that waits for all of its sources (AND), by edge chasing.

    A probe that returns to its initiator proves a cycle of such waits. `deadlocked`: whether a probe of this node
    returned; `members` are the nodes of the cycle. `_latest` has the number of each initiator's latest detection.
    """

    def start(self) -> list[EdgeChasingProbe]:
        """Start a detection; return a probe to each awaited node. Call this when a wait has lasted long."""
        self._number += 1
        return self._ask(self.node, self._number)

    def receive(self, probe: EdgeChasingProbe) -> list[EdgeChasingProbe]:
        """Return the probes that pass `probe` on, once per detection; none if this node does not wait."""
        key = (probe.initiator, probe.number)
        if not self._waits_for or probe.number <= self._latest.get(probe.initiator, -1):
            return []
        self._latest[probe.initiator] = probe.number
        if probe.initiator == self.node:
            self._prove(probe.number, probe.path)
            return []
        return self._ask(*key, probe.path)

    def _ask(self, initiator: NodeId, number: int, path: WaitPath = ()) -> list[EdgeChasingProbe]:
        return [EdgeChasingProbe("probe", initiator, number, self.node, source, path) for source in self._waits_for]


class _Engagement(NamedTuple):
    """A node's part in a diffusing computation.

    `number` is the computation's number, `by` the node that queried this node first, `due` the nodes that have not
    replied to it yet, and `members` the nodes that have.
    """

    number: int
    by: NodeId
    due: frozenset[NodeId]
    members: WaitPath = ()


class OrDetector(_Detector[_Engagement]):
    """Deadlock detection of a node that waits for any one of its sources (OR), by a diffusing computation.

    Replies to all queries prove that no awaited node can run. `deadlocked`: whether all of them came; `members` are the
    nodes that replied. `_latest` has the node's part in each initiator's latest computation.
    """

    def start(self) -> list[EdgeChasingProbe]:
        """Start a detection; return a query to each awaited node. Call this when a wait has lasted long."""
        self._number += 1
        return self._engage((self.node, self._number), self.node)

    def receive(self, probe: EdgeChasingProbe) -> list[EdgeChasingProbe]:
        """Return the messages to send next: queries that pass a first query on, or a reply to a later one.

        The list is empty if this node does not wait.
        """
        key = (probe.initiator, probe.number)
        if not self._waits_for:
            return []
        if probe.kind == "reply":
            return self._count(probe)
        engaged = self._latest.get(probe.initiator)
        if engaged is None or engaged.number < probe.number:
            return self._engage(key, probe.src)
        return [EdgeChasingProbe("reply", *key, self.node, probe.src)] if engaged.number == probe.number else []

    def _engage(self, key: Computation, by: NodeId) -> list[EdgeChasingProbe]:
        initiator, number = key
        self._latest[initiator] = _Engagement(number, by, frozenset(self._waits_for))
        return [EdgeChasingProbe("query", *key, self.node, source) for source in self._waits_for]

    def _count(self, reply: EdgeChasingProbe) -> list[EdgeChasingProbe]:
        """Count the reply of an awaited node, once; after the last one, return this node's own reply."""
        key = (reply.initiator, reply.number)
        engaged = self._latest.get(reply.initiator)
        if engaged is None or engaged.number != reply.number or reply.src not in engaged.due:
            return []
        members = tuple(sorted({*engaged.members, *reply.path}))
        self._latest[reply.initiator] = engaged = engaged._replace(due=engaged.due - {reply.src}, members=members)
        if engaged.due:
            return []
        if reply.initiator == self.node:
            self._prove(reply.number, members)
            return []
        return [EdgeChasingProbe("reply", *key, self.node, engaged.by, members)]
