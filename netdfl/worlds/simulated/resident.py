"""One place in a simulated fleet, and the nodes that live in it one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from netdfl.core.control import Exit, Hello, Life, Order, Report, Start, Stop
from netdfl.core.errors import OwnCodeError, TrainingError
from netdfl.core.types import NodeId, Role
from netdfl.diagnosis.outgoing import Outgoing
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
from netdfl.worlds.simulated.replay import Memory, RememberingWorker
from netdfl.worlds.simulated.training import Training, VirtualWorker


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What all places of a simulated fleet share. `models` holds what is to be judged, by round and node."""

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


class Resident:
    """A node's lives share its ledger, its end of the fabric and its pace."""

    def __init__(self, around: Surroundings, node: NodeId) -> None:
        """Prepare the place; nobody lives in it yet."""
        self.id, self._around, self._blueprint = node, around, around.blueprint
        self.ledger = around.ledger.of(node)
        transport = SimulatedTransport(around.fabric, node)
        self.parts = NodeParts(
            clock=around.clock,
            device=device_of(around.blueprint),
            transport=transport,
            outgoing=Outgoing(transport, around.clock, keep=most_kept(around.blueprint)),
            ledger=self.ledger,
            worker=self._make_worker(),
            recorder=around.recorder,
            journal=around.store,
            kept=MemoryStateKeeper(returns=around.blueprint.keeps_state(node)),
            models=ModelsInMemory(around.directory.path, node, around.models, self._report),
            report=self._report,
            elsewhere=around.fabric.change,
            begins=partial(around.begins, node),
        )
        self.ended = True
        self._beside = BackgroundTasks(around.news.broke)

    def _make_worker(self) -> VirtualWorker:
        around, every = self._around, self._blueprint.scenario.checkpoint.every
        worker = VirtualWorker(self.id, around.training, around.compute)
        if every is not None:
            worker = RememberingWorker(self.id, around.training, around.compute)
            worker.memory = Memory(around.directory.path / CHECKPOINTS, self.id, every)
            worker.task = lambda: self.host.node.task
        worker.round = lambda: self.host.node.round
        return worker

    def live(self, life: Life) -> None:
        """Begin a life: attend."""
        self.host = NodeHost(self._blueprint, self.id, life, self.parts, self._crash)
        self.ended = False
        role = Role.SERVER if self.id == self._blueprint.network.server else Role.CLIENT
        self._report(Hello(node=self.id, role=role.value, epoch=life.epoch))

    def order(self, order: Order) -> None:
        """Carry out an order; the dead heed none."""
        if self.ended:
            return
        if isinstance(order, Stop):
            self.end()
            return
        if isinstance(order, Start):
            for work in (self._live, *self.host.beside()):
                self._beside.do(work())
        self.host.obey(order)

    def end(self) -> None:
        """This life is over."""
        self.ended = True
        self.host.fall_silent()
        self._beside.cancel()

    async def cleared(self) -> None:
        """Return once nothing of it runs any more."""
        await self._beside.ended()

    async def _live(self) -> None:
        try:
            await self.host.live()
        except TrainingError as error:
            code = self.host.fail(error)
            self._leave()
            self._around.news.exited(self.id, Exit(self.host.life.epoch, code))
        except Exception as error:
            told = self.host.told(error)
            if told is error:
                raise
            raise OwnCodeError(f"node {self.id}: {told}") from told.__cause__

    def _crash(self) -> None:
        """The schedule has this life end now."""
        self._leave()
        if self.host.crash is not None:
            self._report(self.host.crash)

    def _leave(self) -> None:
        self.host.progress()
        self.end()
        self._around.fabric.detach(self.id)

    def _report(self, report: Report) -> None:
        self._around.news.report(self.id, report)


def device_of(blueprint: Blueprint) -> str:
    """Where vectors live: on the CPU unless the scenario names a GPU."""
    device = blueprint.scenario.device
    return device if device.startswith("cuda") else "cpu"
