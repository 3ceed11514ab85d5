"""One node of the simulated world: its lives, its hooks, and what it says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from netdfl.algorithms.base import NodeState
from netdfl.core.errors import TrainingError
from netdfl.core.types import Message, NodeId, View
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.outgoing import MOST_KEPT, Outgoing
from netdfl.diagnosis.probing import Probing
from netdfl.fleet.compute import ComputeTime
from netdfl.fleet.evaluation import Snapshot, keep_model
from netdfl.fleet.rejoining import caught_up, joining
from netdfl.fleet.replay import Memory, RememberingWorker
from netdfl.fleet.script import Return, fresh_round, keeps_state
from netdfl.fleet.simulated_ledger import SimulatedLedger
from netdfl.fleet.virtual_training import VirtualWorker
from netdfl.node.heartbeats import Heartbeats
from netdfl.node.pause import Gate
from netdfl.node.remembered import Remembered, durable, recall, remember
from netdfl.node.runtime import Node
from netdfl.record.run import CHECKPOINTS
from netdfl.record.status import NodeStatus, Phase
from netdfl.transport.simulated import SimulatedTransport

if TYPE_CHECKING:
    from netdfl.fleet.simulated import SimulatedFleet


class AlwaysFull:
    """The mailbox of a node that does not read. A `Sink`."""

    def deliver(self, message: Message) -> None:
        """Refuse it for now."""

    def when_room(self, callback: Callable[[], None]) -> None:
        """There is none before another sink is attached."""


class SimulatedNode:
    """A place in the fleet; a node that restarts lives in it again. A `Hooks`."""

    def __init__(self, fleet: SimulatedFleet, node: NodeId, compute: ComputeTime) -> None:
        """Prepare the first life of `node`."""
        self.fleet, self.id = fleet, node
        self.ledger = SimulatedLedger(node, fleet.clock, fleet.recorder)
        self.transport = SimulatedTransport(fleet.fabric, node, self.ledger)
        keep = MOST_KEPT if fleet.scenario.wait.on_stall == "resend" else 0
        self.outgoing = Outgoing(self.transport, fleet.clock, keep=keep)
        self.worker = self._worker(compute)
        self.worker.round = lambda: self.node.round
        self.status = NodeStatus(node)
        self.epoch = 0
        self.kept: NodeState | None = None
        self.memory = Remembered()
        self._keeps = keeps_state(fleet.blueprint.schedule, node)
        self.gone: set[NodeId] = set()
        self.task: asyncio.Task[None] | None = None
        self.beating: asyncio.Task[None] | None = None
        self.probing: asyncio.Task[None] | None = None
        self.node, self.gate = self._live()

    def _worker(self, compute: ComputeTime) -> VirtualWorker:
        every = self.fleet.scenario.checkpoint.every
        if every is None:
            return VirtualWorker(self.id, self.fleet.training, compute)
        worker = RememberingWorker(self.id, self.fleet.training, compute)
        worker.memory = Memory(self.fleet.directory.path / CHECKPOINTS, self.id, every)
        worker.task = lambda: self.node.task
        return worker

    def _live(self) -> tuple[Node, Gate]:
        fleet = self.fleet
        node = fleet.blueprint.node(
            self.id,
            device=device_of(fleet.scenario),
            transport=self.outgoing,
            clock=fleet.clock,
            worker=self.worker,
            recorder=fleet.recorder,
            ledger=self.ledger,
            hooks=self,
            epoch=self.epoch,
        )
        gate = Gate()
        if node.delivery is not None:
            node.delivery.still, node.delivery.keeps = lambda: gate.closed, self._keeps
        return node, gate

    @property
    def running(self) -> bool:
        """Whether it has rounds before it."""
        return self.status.phase in (Phase.STARTING, Phase.RUNNING)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin to run."""
        self.status.phase = Phase.RUNNING
        self.task = group.create_task(self._run(self.node, self.gate))
        self.node.heartbeats = self._heartbeats()
        if self.node.heartbeats is not None:
            self.beating = group.create_task(self.node.heartbeats.run())
        after_ns = self.fleet.scenario.wait.probes
        if isinstance(after_ns, int):
            gate = self.gate
            probing = Probing(self.node, after_ns=after_ns, found=self._found, still=lambda: gate.closed)
            self.probing = group.create_task(probing.run())

    def cancel(self) -> None:
        """End the run of this node, and all that it does beside."""
        self.fall_silent()
        if self.task is not None:
            self.task.cancel()

    def fall_silent(self) -> None:
        """End what this node does beside its run: heartbeats, probes, and what it would send again."""
        if self.node.delivery is not None:
            self.node.delivery.close()
        for task in (self.beating, self.probing):
            if task is not None:
                task.cancel()

    async def _run(self, node: Node, gate: Gate) -> None:
        try:
            await gate.run(node.run())
        except TrainingError as error:
            self.fleet.faults.die(self.id, str(error))
            return
        self.status.phase = Phase.FINISHED
        self.status.round = max(self.status.round, node.round)  # a life after the last round begins none
        self.fleet.node_ended()

    # a failure detector of the nodes' own

    def _heartbeats(self) -> Heartbeats | None:
        detector: Any = self.fleet.scenario.failure_detector
        if detector.kind != "heartbeat":
            return None
        gate = self.gate
        return Heartbeats(
            self.id,
            self.fleet.blueprint.possible_neighbors(self.id),
            every_ns=detector.every,
            misses=detector.misses,
            clock=self.fleet.clock,
            transport=self.transport,
            mailbox=self.node.mailbox,
            gone=self._silent,
            returned=self._heard,
            still=lambda: gate.closed,
            epoch=self.epoch,
        )

    def _silent(self, peer: NodeId) -> None:
        self.fleet.faults.tell(self.id, "gone", peer=peer, detector="heartbeat")
        self.node.waits.set_gone(peer)

    def _heard(self, peer: NodeId) -> None:
        self.fleet.faults.tell(self.id, "returned", peer=peer, detector="heartbeat")
        self.node.waits.set_returned(peer)

    def _found(self, finding: Finding) -> None:
        details = finding.to_event() | {"suspected": finding.suspected, "detection_s": finding.detection_s}
        self.fleet.faults.tell(self.id, "probed", **details)

    # lives

    def restart(self, group: asyncio.TaskGroup, back: Return) -> None:
        """Live again: after the last round that it finished, or in the others' next round, with a model of theirs."""
        self.epoch += 1
        kept, crashed_in = self.kept, max(self.node.round, 0)
        self.node, self.gate = self._live()
        if not back.keep_state:
            joined = fresh_round(crashed_in, (each.node.round for each in self.fleet.nodes.values()))
            self.fleet.evaluation.joined[self.id] = joined
            self.node.joining = joining(self.fleet.blueprint, self.id, joined, back.weight)
        self.node.kept = kept
        self._catch_up(back)
        self.start(group)
        if back.keep_state:
            recall(self.node, self.memory)

    def _catch_up(self, back: Return) -> None:
        others = (status for node, status in self.fleet.status.nodes.items() if node != self.id)
        self.node.catch_up = round = caught_up(self.fleet.scenario, back, others)
        joined = self.fleet.evaluation.joined
        joined[self.id] = max(round, joined.get(self.id, 0))

    def pause(self) -> None:
        """Neither compute nor read, and lose nothing."""
        self.gate.close()
        self.fleet.training.pause(self.id)
        self.transport.attach(AlwaysFull())

    def resume(self) -> None:
        """Go on."""
        self.node.transport.attach(self.node.mailbox)
        self.fleet.training.resume(self.id)
        self.gate.open()

    # hooks

    async def begin_round(self, round: int) -> None:
        """Scripted events of this node's round happen here."""
        self.status.round = round
        self.fleet.stalls.pace.at(self.id, round, self.fleet.loop.now_ns)
        self.fleet.progressed()
        await self.fleet.faults.injection.begin_round(self.id, round)

    async def end_round(self, state: NodeState, view: View, weight: float) -> None:
        """Keep the state, and the model where it is judged."""
        self.kept = state
        if self._keeps:
            self.memory = remember(self.node)
            durable(self.node, self.memory)
        loss = self.node.task.last_loss
        self.status.loss = loss if loss == loss else None
        blueprint = self.fleet.blueprint
        if blueprint.evaluates(view.round) and self.id in blueprint.evaluated:
            self.fleet.evaluation.saved(self.id, view.round, Snapshot(state.x.detach().cpu(), weight))
        if blueprint.keeps_models(view.round):
            keep_model(self.fleet.directory.path, self.id, state.x, weight)


def device_of(scenario: Any) -> str:
    """Where vectors live: on the CPU unless the scenario names a GPU."""
    device: str = getattr(scenario.task, "device", "cpu")
    return device if device.startswith("cuda") else "cpu"
