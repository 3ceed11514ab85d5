"""Deadlock found by the nodes themselves, with probes between them and no supervisor.

Chandy, Misra and Haas, "Distributed Deadlock Detection" (ACM TOCS 1983), for AND waits (edge chasing)
and for OR waits (a diffusing computation). Sans-I/O: a detector takes what comes and returns what is
to be sent. A probe is worth something only while its receiver waits without interruption, so every
wait has a number (`stand`) that changes when the node goes on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from netdfl.core.types import NodeId

WaitPath: TypeAlias = tuple[tuple[NodeId, int], ...]


class EdgeChasingProbe(NamedTuple):
    """`initiator`'s computation number `number`, on its way from `src` to `dst`.

    `path` are the nodes that it has come by, each with the round in which it waits. `sent` answers that
    `src` has sent what `dst` awaits.
    """

    kind: Literal["probe", "query", "reply", "sent"]
    initiator: NodeId
    number: int
    src: NodeId
    dst: NodeId
    path: WaitPath = ()


Computation: TypeAlias = tuple[NodeId, int]


@dataclass
class AndDetector:
    """Edge chasing: a probe that comes back to its initiator proves a cycle of waits for all."""

    node: NodeId
    deadlocked: bool = False
    members: WaitPath = ()
    _waits_for: tuple[NodeId, ...] = ()
    _number: int = 0
    _seen: set[Computation] = field(default_factory=set)

    def wait(self, sources: Collection[NodeId]) -> None:
        """The node begins to wait for all of `sources`; none: it goes on."""
        self._waits_for = tuple(sorted(sources))
        self._seen.clear()
        self.deadlocked = False

    def start(self) -> list[EdgeChasingProbe]:
        """Ask along every wait; call it where a wait has lasted for long."""
        self._number += 1
        return self._ask(self.node, self._number)

    def receive(self, probe: EdgeChasingProbe) -> list[EdgeChasingProbe]:
        """Pass a probe on, once per computation and wait; a node that runs drops it."""
        key = (probe.initiator, probe.number)
        if not self._waits_for or key in self._seen:
            return []
        self._seen.add(key)
        if probe.initiator == self.node:
            self.deadlocked = self.deadlocked or probe.number == self._number
            self.members = probe.path
            return []
        return self._ask(*key, probe.path)

    def _ask(self, initiator: NodeId, number: int, path: WaitPath = ()) -> list[EdgeChasingProbe]:
        return [EdgeChasingProbe("probe", initiator, number, self.node, source, path) for source in self._waits_for]


class _Engaged(NamedTuple):
    """A computation that this node takes part in: who asked first, how many replies are due, and who replied."""

    by: NodeId
    due: int
    members: WaitPath = ()


@dataclass
class OrDetector:
    """A diffusing computation: replies to every query prove that nobody who could help still runs."""

    node: NodeId
    deadlocked: bool = False
    members: WaitPath = ()
    _waits_for: tuple[NodeId, ...] = ()
    _number: int = 0
    _engaged: dict[Computation, _Engaged] = field(default_factory=dict)

    def wait(self, sources: Collection[NodeId]) -> None:
        """The node begins to wait for any of `sources`; none: it goes on."""
        self._waits_for = tuple(sorted(sources))
        self._engaged.clear()
        self.deadlocked = False

    def start(self) -> list[EdgeChasingProbe]:
        """Query every awaited node; call it where a wait has lasted for long."""
        self._number += 1
        return self._engage((self.node, self._number), self.node)

    def receive(self, probe: EdgeChasingProbe) -> list[EdgeChasingProbe]:
        """Spread a first query, answer a later one, count a reply; a node that runs does nothing."""
        key = (probe.initiator, probe.number)
        if not self._waits_for:
            return []
        if probe.kind == "reply":
            return self._count(key, probe.path)
        if key in self._engaged:
            return [EdgeChasingProbe("reply", *key, self.node, probe.src)]
        return self._engage(key, probe.src)

    def _engage(self, key: Computation, by: NodeId) -> list[EdgeChasingProbe]:
        self._engaged[key] = _Engaged(by, len(self._waits_for))
        return [EdgeChasingProbe("query", *key, self.node, source) for source in self._waits_for]

    def _count(self, key: Computation, path: WaitPath) -> list[EdgeChasingProbe]:
        engaged = self._engaged.get(key)
        if engaged is None:
            return []
        members = tuple(sorted({*engaged.members, *path}))
        self._engaged[key] = engaged = _Engaged(engaged.by, engaged.due - 1, members)
        if engaged.due:
            return []
        if key[0] == self.node:
            self.deadlocked = self.deadlocked or key[1] == self._number
            self.members = members
            return []
        return [EdgeChasingProbe("reply", *key, self.node, engaged.by, members)]
