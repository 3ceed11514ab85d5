"""Scripted events in the simulated world: what happens to links and nodes, and who learns of it."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from netdfl.core.clock import TimerName
from netdfl.core.types import NodeId
from netdfl.fleet.rejoining import held_weight
from netdfl.fleet.script import Return
from netdfl.fleet.virtual_loop import SCRIPT
from netdfl.links.events import CompiledEvent
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
        self._clocked = [event for event in events if event.at_ns is not None]
        self._by_round: dict[tuple[NodeId, int], list[CompiledEvent]] = defaultdict(list)
        for event in events:
            for node in event.nodes if event.at_round is not None else ():
                self._by_round[node, event.at_round or 0].append(replace(event, nodes=(node,)))

    @property
    def restart_due(self) -> bool:
        """Whether a node that is down now will be up again."""
        return any(self._restarts[node] for node in self.gone)

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Set the timers of all events that go by the clock; nodes that restart run in `group`.

        The events of one instant have one timer, so that they happen in the schedule's order.
        """
        self.group = group
        for at_ns, events in groupby(self._clocked, key=lambda event: event.at_ns or 0):
            self._set(list(events), at_ns)

    async def begin_round(self, node: NodeId, round: int) -> None:
        """`node` begins `round`: do, once, what is scripted for that."""
        events = self._by_round.pop((node, round), ())
        now = self.fleet.loop.now_ns
        for event in events:
            clocked = replace(event, at_round=None, at_ns=now + event.after_ns)
            if event.after_ns:
                self._set([clocked], now + event.after_ns)
            else:
                self._happen(clocked)
        if events:
            await asyncio.sleep(0)  # where a crash or a pause of this node takes hold

    def _set(self, events: Sequence[CompiledEvent], at_ns: int) -> None:
        for event in events:
            if event.action == "restart":
                self._restarts.update(event.nodes)
            if event.action in ("restart", "resume"):
                for node in event.nodes:
                    self.returns[node].append((at_ns, Return.by(event, at_ns).keep_state))
        first = events[0]
        name: TimerName = ("event", first.source, first.action, *first.nodes)
        self.fleet.loop.call_at_ns(at_ns, name, partial(self._all_happen, events), SCRIPT)

    def _all_happen(self, events: Sequence[CompiledEvent]) -> None:
        for event in events:
            self._happen(event)

    def _happen(self, event: CompiledEvent) -> None:
        if event.action in ("set", "unset"):
            self.fleet.fabric.change(event)
            return
        for node in event.nodes:
            getattr(self, f"_{event.action}")(node, event)

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

    def _pause(self, node: NodeId, event: CompiledEvent) -> None:
        if node in self.gone:  # the dead do not read anyway, and what is sent to them fails
            return
        self.tell(node, "pause")
        self.fleet.nodes[node].pause()

    def _resume(self, node: NodeId, event: CompiledEvent) -> None:
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
