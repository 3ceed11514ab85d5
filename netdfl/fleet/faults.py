"""Scripted events in the simulated world: what happens to links and nodes, and who learns of it."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from netdfl.core.types import NodeId
from netdfl.fleet.rejoining import held_weight
from netdfl.fleet.script import Return
from netdfl.host.injection import FaultInjection
from netdfl.links.schedule.events import CompiledEvent
from netdfl.record.status import Phase

if TYPE_CHECKING:
    from netdfl.fleet.simulated import SimulatedFleet
    from netdfl.fleet.simulated_node import SimulatedNode


class Faults:
    """Carries out the compiled schedule of a run, and tells the survivors if there is an oracle."""

    def __init__(self, fleet: SimulatedFleet, events: Sequence[CompiledEvent]) -> None:
        """Prepare `events`; nothing happens before `begin`."""
        self.fleet = fleet
        self.oracle = fleet.scenario.failure_detector.kind == "oracle"
        self.group: asyncio.TaskGroup | None = None
        self.gone: set[NodeId] = set()
        self._restarts: Counter[NodeId] = Counter()
        self.returns: defaultdict[NodeId, list[tuple[int, bool]]] = defaultdict(list)
        self.injection = FaultInjection(events, fleet.clock, self.happen, self.planned)

    @property
    def restart_due(self) -> bool:
        """Whether a node that is down now will be up again."""
        return any(self._restarts[node] for node in self.gone)

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Set the timers of all events that go by the clock; nodes that restart run in `group`."""
        self.group = group
        self.injection.begin()

    def planned(self, event: CompiledEvent, at_ns: int) -> None:
        """Note when nodes will be back."""
        if event.action == "restart":
            self._restarts.update(event.nodes)
        if event.action in ("restart", "resume"):
            for node in event.nodes:
                self.returns[node].append((at_ns, Return.by(event, at_ns).keep_state))

    def happen(self, event: CompiledEvent) -> None:
        """Carry out an event."""
        if event.action in ("set", "unset"):
            self.fleet.fabric.change(event)
            return
        for node in event.nodes:
            match event.action:
                case "crash":
                    self._crash(node, event)
                case "restart":
                    self._restart(node, event)
                case "pause":
                    self._pause(node)
                case "resume":
                    self._resume(node)
                case "slow_down":
                    self._slow_down(node, event)

    # what happens to a node

    def die(self, node: NodeId, reason: str) -> None:
        """`node` ended for a reason that nobody scripted."""
        here = self.fleet.nodes[node]
        self.tell(node, "training_error", reason=reason)
        self.fleet.note(f"node {node}, round {here.status.round}: {reason}")
        here.status.phase = Phase.DIED
        here.fall_silent()
        self._lose(node)

    def _crash(self, node: NodeId, event: CompiledEvent) -> None:
        here = self.fleet.nodes[node]
        if node in self.gone:
            return
        weight = held_weight(self.fleet.blueprint, here.node)
        self.tell(node, "crash", state=event.parameters.get("state", "kept"), **weight)
        if here.running:
            here.status.phase = Phase.CRASHED
        here.cancel()
        self._lose(node)

    def _restart(self, node: NodeId, event: CompiledEvent) -> None:
        here = self.fleet.nodes[node]
        self._restarts[node] -= 1
        if node not in self.gone or here.status.phase is Phase.DIED or self.group is None:
            return
        self.gone.discard(node)
        here.restart(self.group, Return.by(event, self.fleet.loop.now_ns))
        self.tell(node, "restart", epoch=here.epoch)
        if self.oracle:
            here.node.waits.gone |= self.gone
            for other in self._others(node):
                other.node.waits.set_returned(node)
                self.tell(other.id, "returned", peer=node)

    def _pause(self, node: NodeId) -> None:
        if node in self.gone:  # the dead do not read anyway, and what is sent to them fails
            return
        self.tell(node, "pause")
        self.fleet.nodes[node].pause()

    def _resume(self, node: NodeId) -> None:
        if node in self.gone:  # its mailbox must not be back before it is
            return
        self.tell(node, "resume")
        self.fleet.nodes[node].resume()

    def _slow_down(self, node: NodeId, event: CompiledEvent) -> None:
        factor = float(event.parameters["factor"])
        self.tell(node, "slow_down", factor=factor)
        self.fleet.nodes[node].worker.factor = factor

    def _lose(self, node: NodeId) -> None:
        self.gone.add(node)
        self.fleet.fabric.detach(node)
        if self.oracle:
            for other in self._others(node):
                self.tell(other.id, "gone", peer=node)
                other.node.waits.set_gone(node)
        self.fleet.node_ended()

    def _others(self, node: NodeId) -> Sequence[SimulatedNode]:
        return [each for each in self.fleet.nodes.values() if each.id != node and each.running]

    def tell(self, node: NodeId, kind: str, **details: Any) -> None:
        """Record what happened to `node`."""
        self.fleet.store.event(self.fleet.loop.now_ns, node, self.fleet.nodes[node].status.round, kind, **details)
