"""Nodes whose waits end as soon as no message that they lack can still arrive, as by a perfect deadline.

Relies on: exact knowledge of the whole fleet between two steps of the loop, when nothing can run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from netdfl.core.types import Kind, NodeId, StepId
from netdfl.host.blueprint import Blueprint
from netdfl.transport.simulated.fabric import Fabric
from netdfl.worlds.simulated.loop import Source, VirtualLoop
from netdfl.worlds.simulated.node import SimulatedNode


def without_deadline(blueprint: Blueprint) -> Blueprint:
    """Return a copy of `blueprint` in which nodes wait for messages without a deadline."""
    algorithm = blueprint.algorithm
    return replace(blueprint, algorithm=replace(algorithm, wait=replace(algorithm.wait, deadline_ns=None)))


class PerfectDeadlines:
    """A source of events that ends a node's wait once no message that it lacks can arrive; it wraps another source."""

    def __init__(
        self,
        inner: Source,
        loop: VirtualLoop,
        fabric: Fabric,
        nodes: Mapping[NodeId, SimulatedNode],
        chosen: Collection[NodeId],
    ) -> None:
        """Watch the waits of the `chosen` nodes; all other events come from `inner`."""
        self._inner, self._loop, self._fabric, self._nodes, self._chosen = inner, loop, fabric, nodes, chosen

    def next_ns(self) -> int | None:
        """End waits that are in vain; return the time in ns of the next event, which is now if a wait was ended."""
        for node in self._chosen:
            self._end_wait(node)
        return self._loop.now_ns if self._loop.can_run else self._inner.next_ns()

    def run(self, now_ns: int) -> None:
        """Run the events of the wrapped source that are due at `now_ns`."""
        self._inner.run(now_ns)

    def _end_wait(self, node: NodeId) -> None:
        waits = self._nodes[node].host.node.waits
        wait = waits.current
        if wait is None or wait.kind is not Kind.DATA or self._nodes[node].ended:
            return
        at = StepId(wait.round, wait.step)
        sources = frozenset(self._nodes) - {node} if wait.sources is None else wait.sources
        lacking = sources - wait.have - wait.silent
        lost = frozenset(src for src in lacking if not self._can_come(src, node, at))
        if lost and (wait.sources is not None or lost == lacking):
            waits.skip(lost, lost=True)

    def _can_come(self, src: NodeId, dst: NodeId, at: StepId) -> bool:
        """Return whether `src`'s message to `dst` for the step `at` is under way, or can still be sent."""
        flights = (flight.content[0] for flight in self._fabric.flights())
        if any((m.src, m.dst, m.at) == (src, dst, at) and m.kind in (Kind.DATA, Kind.NOTICE) for m in flights):
            return True
        simulated = self._nodes[src]
        host = simulated.host
        if simulated.ended:
            return host.crash is not None and self._returns(src, host.crash.at_ns)
        again = host.node.delivery is not None and host.node.delivery.sends_again(dst, at)
        return again or at >= host.node.next_step

    def _returns(self, node: NodeId, crashed_ns: int) -> bool:
        """Return whether the schedule restarts `node` after its crash at `crashed_ns`."""
        later = (e for e in self._nodes[node].host.blueprint.schedule if e.at_ns is None or e.at_ns > crashed_ns)
        return any(event.action == "restart" and node in event.nodes for event in later)
