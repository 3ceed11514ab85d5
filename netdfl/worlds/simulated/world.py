"""The `simulated` world: the whole fleet in one process on a virtual clock, exact and repeatable bit for bit.

Every random draw comes from the scenario's seed, every instant has one order (`loop.py`, and `links/engine.py` for
messages), and nothing waits for real time. So a run depends only on its scenario, and takes only the time that its
computations need.

Relies on: one thread that acts in virtual time: what threads compute is joined within a call, and nothing returns later
from outside.

Why: The same supervisor and hosts run as in real worlds, over this loop and its fabric, so that what is found here is
found in the code that runs on machines. Exact arithmetic is a setting of the whole process (`arithmetic.py`), so two
fleets of one process run one after the other.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import EVALUATOR, Evaluate, Evaluated, Hello, Life, Order, Peers, Stop
from netdfl.core.fates import MessageCounts
from netdfl.core.interrupts import interruptible, outside_loops
from netdfl.core.process import freed_kept
from netdfl.core.rng import Streams, kept_streams, seed_streams
from netdfl.core.types import MessageId, NodeId, Payload, PeerMessage
from netdfl.core.whose import theirs
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
from netdfl.scenario.build import build_underlay
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Train
from netdfl.scenario.model.world import SimulatedOptions
from netdfl.training.alone import SequentialService
from netdfl.training.catalog import SIZED_NBYTES
from netdfl.transport.simulated.fabric import Fabric
from netdfl.transport.simulated.one_by_one import OneByOneFabric
from netdfl.transport.wire import frame_size
from netdfl.underlay.shared import SharedCore
from netdfl.worlds.base import Figures, OpenResult, StallMonitor, VirtualWorld, WorldConfig, WorldListener
from netdfl.worlds.simulated.arithmetic import exact_arithmetic, rare_collections
from netdfl.worlds.simulated.instants import OrderedInstants
from netdfl.worlds.simulated.ledger import FleetLedger
from netdfl.worlds.simulated.loop import NoSource, VirtualClock, VirtualLoop
from netdfl.worlds.simulated.measuring import compute_time
from netdfl.worlds.simulated.no_deadline import PerfectDeadlines, without_deadline
from netdfl.worlds.simulated.node import SimulatedNode, SimulationContext
from netdfl.worlds.simulated.replay import RoundMemory
from netdfl.worlds.simulated.training import Training

if TYPE_CHECKING:
    from netdfl.training.service import Service

T = TypeVar("T")


class SimulatedWorld(VirtualWorld):
    """A world that simulates one fleet in this process, in virtual time."""

    def __init__(self, config: WorldConfig, loop: type[VirtualLoop] = VirtualLoop) -> None:
        """Store the settings. Raises MachineError for a scenario with a GPU on a machine without one."""
        scenario = config.scenario
        if config.forkserver is not None:
            config.forkserver.close()
        if scenario.device.startswith("cuda"):
            from netdfl.worlds.forkserver import count_gpus

            spread(scenario.device, count_gpus(), 1)
        self.scenario, self.directory, self._keep_log = scenario, config.directory, config.keep_log
        self._shared = config.blueprint
        self.streams = Streams(scenario.seed)
        assert isinstance(scenario.world, SimulatedOptions)
        self._options = scenario.world
        self.ordered: OrderedInstants | None = None
        self.loop = loop(self.streams.integer("ties"))
        self.clock = VirtualClock(self.loop)
        self.nodes: dict[NodeId, SimulatedNode] = {}
        self.begins: Callable[[NodeId, int, float | None], None] = _nobody
        self.remembers: RoundMemory | None = None
        self._models: dict[tuple[int, NodeId], ModelSnapshot] = {}
        self._stack = ExitStack()

    def recorder(self, store: Store) -> LoggingRecorder:
        """Return a recorder that passes every row to `store` and the event log."""
        lines = None
        if self._keep_log is not None:
            lines = self._stack.enter_context(self._keep_log.open("w", encoding="utf-8"))
        self.store, self.log = store, EventLog(self.clock, self.streams.integer("ties"), lines)
        self._recorder = LoggingRecorder(store, self.log)
        return self._recorder

    def run(self, course: Callable[[], Coroutine[object, object, T]], interrupt: Callable[[], None]) -> T:
        """Run the supervisor's coroutine `course` on the virtual loop; the first Ctrl-C calls `interrupt`."""

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
        """Whether vectors are netdfl's own (`compression.vector`), so that torch is not needed."""
        shared = self._shared
        return is_plain(self.scenario, make_algorithm(self.scenario)) if shared is None else shared.plain

    # the course of a run

    async def open(self, news: WorldListener) -> OpenResult:
        """Build the simulated network, the data and other parts that all nodes share, and the nodes; none starts."""
        seed_streams(self.streams.integer("process"))
        shared = self._shared
        blueprint = Blueprint.of(self.scenario) if shared is None else replace(shared, scenario=self.scenario)
        self.blueprint = blueprint
        self.news = news
        self.loop.set_exception_handler(self._on_exception)
        packets = self.scenario.world.loss_layer == "packet"
        compute = compute_time(blueprint, self.directory)
        link_streams = self.streams if self._options.luck is None else Streams(self._options.luck)
        core = build_underlay(self.scenario)
        links = Links(
            blueprint.links,
            link_streams,
            blueprint.schedule,
            default_table() if packets else None,
            core=None if core is None else SharedCore(core, link_streams, over_tcp=packets),
        )
        scheduled = [event for event in blueprint.schedule if event.acts_on_links and event.at_ns is not None]
        ledger = FleetLedger(self.clock, self._recorder)
        self.fabric = (Fabric if self._options.order is None else OneByOneFabric)(
            self.clock,
            self.streams.integer("ties"),
            ledger,
            links,
            changing=bool(scheduled),
            size=_size_of(self.scenario),
        )
        self._changes = FaultInjection(scheduled, self.clock, self.fabric.change)
        self.service = _service(blueprint)
        context = SimulationContext(
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
            remembers=self.remembers,
        )
        self.nodes = {node: SimulatedNode(context, node) for node in blueprint.node_ids}
        if self._options.no_deadline:
            patient = replace(context, blueprint=without_deadline(blueprint))
            self.nodes |= {node: SimulatedNode(patient, node) for node in self._options.no_deadline}
        news.report(EVALUATOR, Hello(node=EVALUATOR, role="evaluator"))
        return OpenResult(blueprint.problem.partition(), blueprint.problem.notes)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """End the run with the error of a callback, which asyncio would only print."""
        error = context.get("exception")
        if isinstance(error, BaseException) and not isinstance(error, Exception):
            error = theirs(error) or error
        if isinstance(error, Exception) and "handle" in context:
            self.news.broke(error)
        else:
            loop.default_exception_handler(context)

    def launch(self, nodes: Sequence[NodeId], life: Life) -> None:
        """Start each of `nodes`; `life` has the number of their restarts before, and how they rejoin."""
        for node in nodes:
            self.nodes[node].live(life)

    def begin(self, at_ns: int) -> int:
        """Start the schedule; the fleet's time 0 is now, because virtual time stands still until something waits."""
        self._changes.begin()
        return time.monotonic_ns()

    def order(self, node: NodeId, order: Order) -> None:
        """Pass an order to a node, or evaluate models in this process, which is also the evaluator."""
        if node != EVALUATOR:
            if self.ordered is not None and not isinstance(order, Stop):
                self.ordered.note_answer()
            if not isinstance(order, Peers):  # the fabric needs no addresses
                self.nodes[node].order(order)
        elif isinstance(order, Evaluate):
            models = {each: self._models.pop((order.round, each)) for each in order.nodes}
            read = {each: (lambda model=model: model) for each, model in models.items()}
            self.news.report(EVALUATOR, Evaluated(order.round, judge(self.blueprint, read)))

    async def aclose(self, grace_s: float) -> Figures:
        """End all tasks, record messages under way as `in_flight`, and return the world's final report."""
        self.loop.source = NoSource()
        for simulated in self.nodes.values():
            await simulated.cleared()
        if self.nodes:
            self.service.close()
            self.fabric.leave(*self.nodes)
            for simulated in self.nodes.values():
                simulated.ledger.close()
            own = getattr(getattr(self.blueprint.problem, "model", None), "own_modules", {})
            self.store.event(self.loop.now_ns, None, 0, "training", **self.service.summary(), **own)
        packets = self.scenario.world.loss_layer == "packet"
        return Figures(
            links={"layer": self.scenario.world.loss_layer} | ({"engine": "tcp model"} if packets else {}),
            virtual_duration_s=self.loop.now_ns / NS_PER_S,
            event_log_hash=self.log.hexdigest(),
        )

    # its present state

    def watched_by(self, monitor: StallMonitor) -> None:
        """Let `monitor` look for stalls at its times `due_ns`, and end a wait whenever nothing can run.

        If it ends a node's wait and still nothing can run, because the node also waits for something else, it is called
        again.
        """

        def idle() -> None:
            monitor.idle()
            while not (self.loop.can_run or monitor.over):
                monitor.idle()

        self.loop.source, self.loop.on_idle = _MonitoredSource(self.fabric, self.loop, monitor), idle
        if chosen := self._options.no_deadline:
            self.loop.source = PerfectDeadlines(self.loop.source, self.loop, self.fabric, self.nodes, chosen)
        if (orders := self._options.order) is not None and isinstance(self.fabric, OneByOneFabric):
            self.ordered = OrderedInstants(orders, self.loop.source, self.loop, self.fabric)
            self.loop.source = self.ordered

    def accounts(self) -> dict[NodeId, Account]:
        """Return what each node does, waits for and has sent, including its messages under way in the network."""
        flying: defaultdict[NodeId, defaultdict[NodeId, list[tuple[MessageId, int]]]]
        flying = defaultdict(lambda: defaultdict(list))
        for edge, (_, sending), _, _ in self.fabric.flights():
            flying[edge.edge[0]][edge.edge[1]].append((sending.id, sending.sent_ns))
        return {
            node: simulated.host.account(ended=simulated.ended, flying=flying[node])
            for node, simulated in self.nodes.items()
        }

    @override
    def sent(self) -> tuple[int, MessageCounts]:
        ledgers = [simulated.ledger for simulated in self.nodes.values()]
        return sum(each.bytes_sent for each in ledgers), MessageCounts.total(each.counts for each in ledgers)

    @override
    def waits(self) -> dict[NodeId, WaitInBrief]:
        found = {i: wait_in_brief(each.host.node) for i, each in self.nodes.items() if not each.ended}
        return {node: wait for node, wait in found.items() if wait is not None}

    @override
    def stack(self, node: NodeId) -> str:
        return stack_of(self.nodes[node].host.gate.coroutine)

    @override
    def can_send_again(self, node: NodeId, sent: PeerMessage) -> bool:
        return self.nodes[node].parts.outgoing.can_send_again(sent)


def _nobody(node: NodeId, round: int, train_loss: float | None) -> None:
    """Ignore the start of a node's round; the default of `begins`, which a monitor or a replay may set."""


def _service(blueprint: Blueprint) -> SequentialService | Service:
    if blueprint.plain:
        return SequentialService()
    from netdfl.training.service import Service

    return Service(blueprint.scenario.batching)


def _size_of(scenario: Scenario) -> Callable[[Payload], int]:
    """Return a function from a message's contents to its size in bytes.

    This is the size of its frame. In a task of kind `sized`, a small message stands for a larger one, whose size
    counts.
    """
    task = scenario.task
    if isinstance(task, Train) or task.kind != "sized":
        return frame_size
    claimed = task.params["bytes"]

    def size(payload: Payload) -> int:
        real = sum(array.nbytes for array in payload.arrays.values())
        payload.size = frame_size(payload) - real + real * claimed // SIZED_NBYTES
        return payload.size

    return size


class _MonitoredSource:
    """A source of due times that combines the simulated network's with those at which the monitor looks for stalls."""

    def __init__(self, fabric: Fabric, loop: VirtualLoop, monitor: StallMonitor) -> None:
        self._fabric, self._loop, self._monitor = fabric, loop, monitor

    def next_ns(self) -> int | None:
        due = self._fabric.next_ns()
        if due is None:
            return self._monitor.due_ns if self._loop.has_timers else None
        return min(due, self._monitor.due_ns)

    def run(self, now_ns: int) -> None:
        if now_ns == self._monitor.due_ns:
            self._monitor.look(now_ns)
            if self._fabric.next_ns() != now_ns:
                return
        self._fabric.run(now_ns)
