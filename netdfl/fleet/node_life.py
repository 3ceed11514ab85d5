"""What happens to one real node beside its algorithm: scripted faults, checkpoints, heartbeats, measurements."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

from netdfl.algorithms.base import NodeState
from netdfl.algorithms.families import first_state
from netdfl.core.clock import Clock
from netdfl.core.errors import RunError
from netdfl.core.types import NodeId
from netdfl.diagnosis.fidelity import EVENT, Meter
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.probing import AFTER_NS, Probing
from netdfl.fleet.build import Blueprint
from netdfl.fleet.node_network import Door, NodeTransport
from netdfl.fleet.rejoining import joining
from netdfl.fleet.script import SlowWorker, keeps_state
from netdfl.host.injection import FaultInjection, events_of
from netdfl.links.schedule.events import CompiledEvent
from netdfl.node.checkpoint import load_state, save_state
from netdfl.node.heartbeats import Heartbeats
from netdfl.node.pause import Gate
from netdfl.node.remembered import Remembered, durable, recall, remember
from netdfl.node.runtime import Node
from netdfl.node.worker import Worker
from netdfl.record.base import Recorder


class Life:
    """One life of one node. What the schedule does to it is done here."""

    def __init__(
        self, blueprint: Blueprint, node: NodeId, directory: Path, clock: Clock, recorder: Recorder, worker: Worker
    ) -> None:
        """Prepare; `take` gives it its node."""
        self.blueprint, self.id, self.clock, self.recorder = blueprint, node, clock, recorder
        self.checkpoint = directory / "checkpoints" / f"{node:03d}.safetensors"
        self.worker = SlowWorker(worker)
        self.gate = Gate()
        self.injection = FaultInjection(events_of(blueprint.schedule, node), clock, self.happen)
        self.begun, self.crashing = asyncio.Event(), asyncio.Event()
        self.crashed_by: CompiledEvent | None = None
        self.crashed_ns = 0
        self.rejoin: Mapping[str, Any] | None = None
        self.probing: Probing | None = None
        self.remembered: Remembered | None = None
        self._keeps = keeps_state(blueprint.schedule, node)

    def take(self, node: Node, transport: NodeTransport, meter: Meter, rejoin: Mapping[str, Any] | None) -> None:
        """Live as `node`; `rejoin` says with which state a later life begins, and in which round."""
        self.node, self.transport, self.meter, self.rejoin = node, transport, meter, rejoin
        self.door = Door(node.mailbox)
        node.transport.attach(self.door)
        if node.delivery is not None:
            node.delivery.still, node.delivery.keeps = lambda: self.gate.closed, self._saves
        node.heartbeats = self.heartbeats = self._make_heartbeats()
        if rejoin is not None:
            state = self._restored(keep=rejoin["keep_state"], round=rejoin["round"])
            node.kept = state._replace(round=max(state.round, rejoin.get("at_least", 0)))
            if not rejoin["keep_state"]:
                node.joining = joining(self.blueprint, self.id, node.kept.round, rejoin.get("weight", 0))

    def begin(self) -> None:
        """The fleet's time has begun."""
        self.begun.set()
        if self.remembered is not None:
            recall(self.node, self.remembered)
        self.injection.begin(None if self.node.kept is None else self.node.kept.round)
        self.transport.begin()

    def background(self) -> Iterator[Coroutine[Any, Any, Any]]:
        """What runs beside the algorithm; the first to end ends the node."""
        if self.blueprint.emulates_messages:
            yield self.meter.watch_loop(self.clock)
        if self.heartbeats is not None:
            yield self._once_begun(self.heartbeats.run)
        if self.probing is not None:
            yield self._once_begun(self.probing.run)

    def leave(self) -> None:
        """Record how true the emulated links were."""
        if self.blueprint.emulates_messages:
            self._tell(EVENT, **self.meter.to_json())

    # state

    async def end_round(self, state: NodeState) -> None:
        """Save the state where it may be needed; the next round's messages leave only when it is durable.

        Raises RunError where the disk refuses it.
        """
        if not self._is_due(state.round):
            return
        memory = remember(self.node)
        try:
            self.checkpoint.parent.mkdir(exist_ok=True)
            await asyncio.to_thread(save_state, (state, memory), self.checkpoint)
        except OSError as error:
            raise RunError(f"{self.checkpoint} can't be written: {error.strerror}") from error
        durable(self.node, memory)

    @property
    def _saves(self) -> bool:
        return self._keeps or self.blueprint.scenario.checkpoint.every is not None

    def _is_due(self, round: int) -> bool:
        every = self.blueprint.scenario.checkpoint.every
        return self._keeps or (every is not None and (round % every == 0 or round == self.node.num_rounds))

    def _restored(self, *, keep: bool, round: int) -> NodeState:
        node, view = self.node, self.blueprint.view(self.id, round, frozenset())
        fresh = first_state(node.task.initial(), node.algorithm, view)
        if not keep or not self.checkpoint.exists():
            return fresh
        state, self.remembered = load_state(self.checkpoint, (fresh, Remembered()))
        return state

    # what the schedule does

    def happen(self, event: CompiledEvent) -> None:
        """Carry out an event."""
        match event.action:
            case "crash":
                self.crash(event)
            case "pause":
                self.pause()
            case "resume":
                self.resume()
            case "slow_down":
                self.slow_down(float(event.parameters["factor"]))

    def crash(self, event: CompiledEvent) -> None:
        """Stop for good: neither compute, nor read, nor send."""
        if self.crashed_by is None:
            self.crashed_by = event
            self.crashed_ns = self.clock.now_ns() if event.at_ns is None else event.at_ns
            self._stand_still()
            self.crashing.set()

    def pause(self) -> None:
        """Neither compute nor read, and lose nothing."""
        self._tell("pause")
        self._stand_still()

    def resume(self) -> None:
        """Go on, unless this life is over."""
        if self.crashed_by is None:
            self._tell("resume")
            self.gate.open()
            self.door.open()

    def slow_down(self, factor: float) -> None:
        """Take `factor` times as long to compute from now on."""
        self.worker.factor = factor
        self._tell("slow_down", factor=self.worker.factor)

    def _stand_still(self) -> None:
        self.gate.close()
        self.door.close()

    # heartbeats

    def _make_heartbeats(self) -> Heartbeats | None:
        detector: Any = self.blueprint.scenario.failure_detector
        if detector.kind != "heartbeat":
            return None
        return Heartbeats(
            self.id,
            self.blueprint.possible_neighbors(self.id),
            every_ns=detector.every,
            misses=detector.misses,
            clock=self.clock,
            transport=self.transport,
            mailbox=self.node.mailbox,
            gone=self._silent,
            returned=self._heard,
            still=lambda: self.gate.closed,
            epoch=self.node.epoch,
        )

    async def _once_begun(self, run: Callable[[], Awaitable[None]]) -> None:
        await self.begun.wait()
        await self.clock.sleep_until(0)
        await run()

    def _silent(self, peer: NodeId) -> None:
        self._tell("gone", peer=peer, detector="heartbeat")
        self.node.waits.set_gone(peer)

    def _heard(self, peer: NodeId) -> None:
        self._tell("returned", peer=peer, detector="heartbeat")
        self.node.waits.set_returned(peer)

    # deadlocks

    def ask_peers(self, *, launched: bool) -> None:
        """Find deadlocks with the others alone, where the scenario wants it or no launcher looks."""
        wait = self.blueprint.scenario.wait
        after_ns = (None if launched else AFTER_NS) if wait.probes == "auto" else wait.probes
        self._skips = not launched and wait.on_stall == "skip"
        if after_ns is not None:
            self.probing = Probing(self.node, after_ns=after_ns, found=self._found, still=lambda: self.gate.closed)

    def _found(self, finding: Finding) -> None:
        self._tell("probed", **finding.to_event(), suspected=finding.suspected, detection_s=finding.detection_s)
        print(f"node {self.id}: {finding.text}", file=sys.stderr)
        if self._skips and not finding.suspected:
            self.node.waits.skip(frozenset(source for _, source in finding.witness))

    def _tell(self, kind: str, **details: Any) -> None:
        self.recorder.event(self.clock.now_ns(), self.id, max(self.node.round, 0), kind, **details)
