"""The `simulated` world: the whole fleet in one process on a virtual clock, exact and repeatable bit for bit."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import EVALUATOR, Evaluate, Evaluated, Hello, Life, Order, Peers
from netdfl.core.fates import MessageCounts
from netdfl.core.interrupts import interruptible, outside_loops
from netdfl.core.process import freed_kept
from netdfl.core.rng import Streams, kept_streams, seed_streams
from netdfl.core.types import MessageId, NodeId, Payload, PeerMessage
from netdfl.diagnosis.account import Account, WaitInBrief, stack_of, wait_in_brief
from netdfl.host.blueprint import Blueprint, make_algorithm
from netdfl.host.injection import FaultInjection
from netdfl.host.judging import judge
from netdfl.host.models import ModelSnapshot
from netdfl.host.plan import spread
from netdfl.host.task_setup import is_plain
from netdfl.links.channel import Links
from netdfl.links.rules.tcp import default_table
from netdfl.record.base import Store
from netdfl.record.event_log import EventLog, LoggingRecorder
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Train
from netdfl.scenario.model.world import SimulatedOptions
from netdfl.training.alone import SequentialService
from netdfl.training.catalog import SIZED_NBYTES
from netdfl.transport.simulated.fabric import Fabric
from netdfl.transport.wire import frame_size
from netdfl.worlds.base import Figures, OpenResult, StallMonitor, WorldConfig, WorldListener
from netdfl.worlds.simulated.arithmetic import exact_arithmetic, rare_collections
from netdfl.worlds.simulated.ledger import FleetLedger
from netdfl.worlds.simulated.loop import NoSource, VirtualClock, VirtualLoop
from netdfl.worlds.simulated.measuring import compute_time
from netdfl.worlds.simulated.resident import Resident, Surroundings
from netdfl.worlds.simulated.training import Training

if TYPE_CHECKING:
    from netdfl.training.service import Service

T = TypeVar("T")


class SimulatedWorld:
    """One fleet's virtual world."""

    def __init__(self, setting: WorldConfig, loop: type[VirtualLoop] = VirtualLoop) -> None:
        """Prepare; nothing is built yet. Raises MachineError where the scenario wants a GPU that is not there."""
        scenario = setting.scenario
        if setting.forkserver is not None:
            setting.forkserver.close()
        if scenario.device.startswith("cuda"):
            from netdfl.worlds.forkserver import count_gpus

            spread(scenario.device, count_gpus(), 1)
        self.scenario, self.directory, self._keep_log = scenario, setting.directory, setting.keep_log
        self._shared = setting.blueprint
        self.streams = Streams(scenario.seed)
        self._luck = scenario.world.luck if isinstance(scenario.world, SimulatedOptions) else None
        self.loop = loop(self.streams.integer("ties"))
        self.clock = VirtualClock(self.loop)
        self.residents: dict[NodeId, Resident] = {}
        self.begins: Callable[[NodeId, int, float | None], None] = _nobody
        self._models: dict[tuple[int, NodeId], ModelSnapshot] = {}
        self._stack = ExitStack()

    def recorder(self, store: Store) -> LoggingRecorder:
        """See `World`: every row goes past the event log."""
        lines = None
        if self._keep_log is not None:
            lines = self._stack.enter_context(self._keep_log.open("w", encoding="utf-8"))
        self.store, self.log = store, EventLog(self.clock, self.streams.integer("ties"), lines)
        self._recorder = LoggingRecorder(store, self.log)
        return self._recorder

    def run(self, course: Callable[[], Coroutine[object, object, T]], interrupt: Callable[[], None]) -> T:
        """See `World`."""

        def run() -> T:
            with (
                self._stack,
                kept_streams() if self._plain() else exact_arithmetic(),
                rare_collections(self, self.scenario.num_nodes),
                freed_kept(),
                interruptible(interrupt),
                asyncio.Runner(loop_factory=lambda: self.loop) as runner,
            ):
                return runner.run(course())

        return outside_loops(run)

    def _plain(self) -> bool:
        """Whether no tensor is torch's."""
        shared = self._shared
        return is_plain(self.scenario, make_algorithm(self.scenario)) if shared is None else shared.plain

    # the course of a run

    async def open(self, news: WorldListener) -> OpenResult:
        """See `World`: build what all nodes share."""
        seed_streams(self.streams.integer("process"))
        shared = self._shared
        blueprint = Blueprint.of(self.scenario) if shared is None else replace(shared, scenario=self.scenario)
        self.blueprint = blueprint
        self.news = news
        self.loop.set_exception_handler(self._on_exception)
        packets = self.scenario.world.loss_layer == "packet"
        compute = compute_time(blueprint, self.directory)
        luck = self.streams if self._luck is None else Streams(self._luck)
        links = Links(blueprint.links, luck, blueprint.schedule, default_table() if packets else None)
        scheduled = [event for event in blueprint.schedule if event.acts_on_links and event.at_ns is not None]
        ledger = FleetLedger(self.clock, self._recorder)
        self.fabric = Fabric(
            self.clock,
            self.streams.integer("ties"),
            ledger,
            links,
            changing=bool(scheduled),
            size=_size_of(self.scenario),
        )
        self._changes = FaultInjection(scheduled, self.clock, self.fabric.change)
        self.service = _service(blueprint)
        around = Surroundings(
            blueprint=blueprint,
            directory=self.directory,
            clock=self.clock,
            fabric=self.fabric,
            ledger=ledger,
            training=Training(self.clock, self.service.compute, at_once=blueprint.plain),
            compute=compute,
            recorder=self._recorder,
            store=self.store,
            models=self._models,
            news=news,
            begins=self.begins,
        )
        self.residents = {node: Resident(around, node) for node in blueprint.node_ids}
        news.report(EVALUATOR, Hello(node=EVALUATOR, role="evaluator"))
        return OpenResult(blueprint.problem.partition(), blueprint.problem.notes)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """What a callback raised breaks the run: asyncio would print it and go on."""
        error = context.get("exception")
        if isinstance(error, Exception) and "handle" in context:
            self.news.broke(error)
        else:
            loop.default_exception_handler(context)

    def launch(self, nodes: Sequence[NodeId], life: Life) -> None:
        """See `World`."""
        for node in nodes:
            self.residents[node].live(life)

    def begin(self, at_ns: int) -> int:
        """See `World`: virtual time stands still until something waits."""
        self._changes.begin()
        return time.monotonic_ns()

    def order(self, node: NodeId, order: Order) -> None:
        """See `World`; this process judges models itself."""
        if node != EVALUATOR:
            if not isinstance(order, Peers):  # the fabric knows where everybody is
                self.residents[node].order(order)
        elif isinstance(order, Evaluate):
            models = {each: self._models.pop((order.round, each)) for each in order.nodes}
            read = {each: (lambda model=model: model) for each, model in models.items()}
            self.news.report(EVALUATOR, Evaluated(order.round, judge(self.blueprint, read)))

    async def aclose(self, grace_s: float) -> Figures:
        """See `World`: settle what is in flight."""
        self.loop.source = NoSource()
        for resident in self.residents.values():
            await resident.cleared()
        if self.residents:
            self.service.close()
            self.fabric.leave(*self.residents)
            for resident in self.residents.values():
                resident.ledger.edges = {}  # as a fabric's queues
            own = getattr(getattr(self.blueprint.problem, "model", None), "own_modules", {})
            self.store.event(self.loop.now_ns, None, 0, "training", **self.service.summary(), **own)
        packets = self.scenario.world.loss_layer == "packet"
        return Figures(
            links={"layer": self.scenario.world.loss_layer} | ({"engine": "tcp model"} if packets else {}),
            virtual_duration_s=self.loop.now_ns / NS_PER_S,
            event_log_hash=self.log.hexdigest(),
        )

    # what is known of it

    def watched_by(self, looker: StallMonitor) -> None:
        """See `VirtualWorld`: where what a look ended was held up by something else, too, it looks again."""

        def idle() -> None:
            looker.idle()
            while not (self.loop.can_run or looker.over):
                looker.idle()

        self.loop.source, self.loop.on_idle = _Watched(self.fabric, self.loop, looker), idle

    def accounts(self) -> dict[NodeId, Account]:
        """See `VirtualWorld`: the fabric knows what is in flight."""
        flying: defaultdict[NodeId, defaultdict[NodeId, list[tuple[MessageId, int]]]]
        flying = defaultdict(lambda: defaultdict(list))
        for edge, (_, sending), _, _ in self.fabric.flights():
            flying[edge.edge[0]][edge.edge[1]].append((sending.id, sending.sent_ns))
        return {
            node: resident.host.account(ended=resident.ended, flying=flying[node])
            for node, resident in self.residents.items()
        }

    def sent(self) -> tuple[int, MessageCounts]:
        """See `VirtualWorld`."""
        ledgers = [resident.ledger for resident in self.residents.values()]
        return sum(each.bytes_sent for each in ledgers), MessageCounts.total(each.counts for each in ledgers)

    def waits(self) -> dict[NodeId, WaitInBrief]:
        """See `VirtualWorld`."""
        found = {i: wait_in_brief(each.host.node) for i, each in self.residents.items() if not each.ended}
        return {node: wait for node, wait in found.items() if wait is not None}

    def stack(self, node: NodeId) -> str:
        """See `VirtualWorld`."""
        return stack_of(self.residents[node].host.gate.coroutine)

    def can_send_again(self, node: NodeId, sent: PeerMessage) -> bool:
        """See `VirtualWorld`."""
        return self.residents[node].parts.outgoing.can_send_again(sent)


def _nobody(node: NodeId, round: int, train_loss: float | None) -> None:
    """Nobody is told."""


def _service(blueprint: Blueprint) -> SequentialService | Service:
    if blueprint.plain:
        return SequentialService()
    from netdfl.training.service import Service

    return Service(blueprint.scenario.batching)


def _size_of(scenario: Scenario) -> Callable[[Payload], int]:
    """Bytes of a message: of its frame, or what it claims where a task says that messages stand for larger ones."""
    task = scenario.task
    if isinstance(task, Train) or task.kind != "sized":
        return frame_size
    claimed = task.params["bytes"]

    def size(payload: Payload) -> int:
        real = sum(array.nbytes for array in payload.arrays.values())
        payload.size = frame_size(payload) - real + real * claimed // SIZED_NBYTES
        return payload.size

    return size


class _Watched:
    """The fabric as the loop's `Source`, with a look at the time of a look; none where nothing else is due."""

    def __init__(self, fabric: Fabric, loop: VirtualLoop, looker: StallMonitor) -> None:
        self._fabric, self._loop, self._looker = fabric, loop, looker

    def next_ns(self) -> int | None:
        due = self._fabric.next_ns()
        if due is None:
            return self._looker.due_ns if self._loop.has_timers else None
        return min(due, self._looker.due_ns)

    def run(self, now_ns: int) -> None:
        if now_ns == self._looker.due_ns:
            self._looker.look(now_ns)
            if self._fabric.next_ns() != now_ns:
                return
        self._fabric.run(now_ns)
