"""One node of a simulated fleet, through crashes and restarts.

A crash ends a life, and a restart begins the next one. The node's ledger, its end of the fabric, its worker and its
kept state outlast a life; its `NodeHost` does not.

Relies on: `NodeHost`, which has the same lives on either clock; here its orders are calls.

Why: Messages under way and counts belong to the network and to the record, not to a process, so a crash must not take
them along. A kept state lies in memory, as a disk would keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

from netdfl.core.control import Exit, Hello, Life, Order, Report, Start, Stop
from netdfl.core.errors import OwnCodeError, TrainingError
from netdfl.core.types import NodeId, Role
from netdfl.diagnosis.outgoing import OutgoingMessages
from netdfl.host.blueprint import Blueprint
from netdfl.host.kept import MemoryStateKeeper
from netdfl.host.models import ModelsInMemory, ModelSnapshot
from netdfl.host.node import NodeHost, NodeParts, most_kept
from netdfl.record.base import Store
from netdfl.record.directory import CHECKPOINTS, RunDirectory
from netdfl.record.event_log import LoggingRecorder
from netdfl.transport.simulated.fabric import Fabric
from netdfl.transport.simulated.transport import SimulatedTransport
from netdfl.worlds.base import BackgroundTasks, WorldListener
from netdfl.worlds.simulated.compute import ComputeTime
from netdfl.worlds.simulated.ledger import FleetLedger
from netdfl.worlds.simulated.loop import VirtualClock
from netdfl.worlds.simulated.replay import Memory, RememberingWorker, RoundMemory
from netdfl.worlds.simulated.training import Training, VirtualWorker


@dataclass(frozen=True, kw_only=True)
class SimulationContext:
    """The objects that all nodes of a simulated fleet share, such as its clock, its network and its recorder.

    `models` holds models to evaluate, by round and node. `begins` is called whenever a node begins a round, with the
    node, the round and its last training loss. `remembers`, if given, can supply the outcome of a local round.
    """

    blueprint: Blueprint
    directory: RunDirectory
    clock: VirtualClock
    fabric: Fabric
    ledger: FleetLedger
    training: Training
    compute: ComputeTime
    recorder: LoggingRecorder
    store: Store
    models: dict[tuple[int, NodeId], ModelSnapshot]
    news: WorldListener
    begins: Callable[[NodeId, int, float | None], None]
    remembers: RoundMemory | None = None


class SimulatedNode:
    """A node of a simulated fleet: carries out the supervisor's orders, and starts, crashes and restarts."""

    def __init__(self, context: SimulationContext, node: NodeId) -> None:
        """Prepare the parts of `node` that outlast a crash, such as ledger and worker, without starting the node."""
        self.id, self._context, self._blueprint = node, context, context.blueprint
        self.ledger = context.ledger.of(node)
        transport = SimulatedTransport(context.fabric, node)
        self.parts = NodeParts(
            clock=context.clock,
            device=device_of(context.blueprint),
            transport=transport,
            outgoing=OutgoingMessages(transport, context.clock, keep=most_kept(context.blueprint)),
            ledger=self.ledger,
            worker=self._make_worker(),
            recorder=context.recorder,
            journal=context.store,
            kept=MemoryStateKeeper(returns=context.blueprint.keeps_state(node)),
            models=ModelsInMemory(context.directory.path, node, context.models, self._report),
            report=self._report,
            elsewhere=context.fabric.change,
            begins=partial(context.begins, node),
        )
        self.ended = True
        self._tasks = BackgroundTasks(context.news.broke)

    def _make_worker(self) -> VirtualWorker:
        context, every = self._context, self._blueprint.scenario.checkpoint.every
        parts = self.id, context.training, context.compute, lambda: self.host.node.round
        memory = context.remembers
        if memory is None and every is not None:
            memory = Memory(context.directory.path / CHECKPOINTS, self.id, every)
        if memory is None:
            return VirtualWorker(*parts)
        return RememberingWorker(*parts, memory=memory, task=lambda: self.host.node.task)

    @cached_property
    def host(self) -> NodeHost:
        """The object that runs the node since the node's last start, even if the node has ended since then.

        For a node that has yet to join, a host that was never started.
        """
        absent = NodeHost(self._blueprint, self.id, Life(), self.parts, self._crash)
        self._context.fabric.detach(self.id)
        return absent

    def live(self, life: Life) -> None:
        """Start this node and report it to the supervisor; `life` has its number of restarts and how it rejoins."""
        self.host = NodeHost(self._blueprint, self.id, life, self.parts, self._crash)
        self.ended = False
        role = Role.SERVER if self.id == self._blueprint.network.server else Role.CLIENT
        self._report(Hello(node=self.id, role=role.value, epoch=life.epoch))

    def order(self, order: Order) -> None:
        """Carry out an order of the supervisor; do nothing while the node is down."""
        if self.ended:
            return
        if isinstance(order, Stop):
            self.end()
            return
        if isinstance(order, Start):
            for work in (self._live, *self.host.beside()):
                self._tasks.do(work())
        self.host.obey(order)

    def end(self) -> None:
        """Stop the node: cancel its tasks and its sending."""
        self.ended = True
        self.host.fall_silent()
        self._tasks.cancel()

    async def cleared(self) -> None:
        """Return once no task of the node is running."""
        await self._tasks.ended()

    async def _live(self) -> None:
        try:
            await self.host.live()
        except TrainingError as error:
            code = self.host.fail(error)
            self._leave()
            self._context.news.exited(self.id, Exit(self.host.life.epoch, code))
        except OwnCodeError as told:
            raise OwnCodeError(f"node {self.id}: {told}") from told.__cause__

    def _crash(self) -> None:
        """Take the node down by the crash that the schedule has for it now, and report the crash."""
        self._leave()
        if self.host.crash is not None:
            self._report(self.host.crash)

    def _leave(self) -> None:
        self.host.progress()
        self.end()
        self._context.fabric.detach(self.id)

    def _report(self, report: Report) -> None:
        self._context.news.report(self.id, report)


def device_of(blueprint: Blueprint) -> str:
    """Return the device for vectors: the CPU, unless the scenario names a GPU."""
    device = blueprint.scenario.device
    return device if device.startswith("cuda") else "cpu"
