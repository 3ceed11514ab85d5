"""The `simulated` world: the whole fleet in one process on a virtual clock, exact and repeatable bit for bit."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from netdfl.algorithms.families import first_state
from netdfl.core.clock import NS_PER_S
from netdfl.core.errors import NetdflError, RunError
from netdfl.core.fates import MessageCounts
from netdfl.core.malloc import freed_kept
from netdfl.core.types import NodeId
from netdfl.fleet.build import Blueprint
from netdfl.fleet.compute import COMPUTE_FILE, ComputeTime, Measured, record, replay, round_ns, slow_nodes, time_ns
from netdfl.fleet.devices import spread
from netdfl.fleet.evaluation import Snapshot, judge_average
from netdfl.fleet.faults import Faults
from netdfl.fleet.interrupts import interruptible
from netdfl.fleet.loops import outside_loops
from netdfl.fleet.simulated_node import SimulatedNode
from netdfl.fleet.simulated_stalls import Stalls
from netdfl.fleet.virtual_loop import VirtualClock, VirtualLoop
from netdfl.fleet.virtual_training import Training
from netdfl.links.channel import Links
from netdfl.links.rules.tcp import default_table
from netdfl.record.event_log import EventLog, LoggingRecorder
from netdfl.record.run import RunDirectory
from netdfl.record.status import FleetStatus, Phase
from netdfl.record.store import StoreWriter
from netdfl.scenario.build import build_links, compile_schedule
from netdfl.scenario.model.schema import Scenario
from netdfl.supervisor.evaluation import Evaluation
from netdfl.training.service import Service
from netdfl.transport.fabric import Fabric

if TYPE_CHECKING:
    from netdfl.fleet.run import View

SHOW_S = 0.25


@dataclass(frozen=True)
class Outcome:
    """How a simulated fleet ended, beside what it recorded. Durations in seconds."""

    duration_s: float
    virtual_duration_s: float
    event_log_hash: str
    stalled: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    unfinished: Sequence[str] = ()
    interrupted: bool = False
    broke: str = ""


def simulate(
    scenario: Scenario,
    directory: RunDirectory,
    status: FleetStatus,
    view: View,
    keep_log: Path | None = None,
) -> Outcome:
    """Run `scenario` in this process, and return how it ended.

    `keep_log` gets the event log's lines. Raises InputError where the scenario asks for what can't be.
    """
    spread(getattr(scenario.task, "device", "cpu"), torch.cuda.device_count(), 1)
    return outside_loops(lambda: _simulate(scenario, directory, status, view, keep_log))


def _simulate(
    scenario: Scenario, directory: RunDirectory, status: FleetStatus, view: View, keep_log: Path | None
) -> Outcome:
    with exact_arithmetic(), rare_collections(), freed_kept(), ExitStack() as stack:
        blueprint = Blueprint.of(scenario)
        compute = compute_time(blueprint, directory)
        loop = VirtualLoop(blueprint.streams.integer("ties"))
        lines = stack.enter_context(keep_log.open("w", encoding="utf-8")) if keep_log is not None else None
        log = EventLog(VirtualClock(loop), blueprint.streams.integer("ties"), lines)
        fleet = SimulatedFleet(blueprint, directory, loop, compute, log, status, view)
        with interruptible(fleet.interrupt), asyncio.Runner(loop_factory=lambda: loop) as runner:
            began = time.monotonic()
            broke = ""
            try:
                runner.run(fleet.run())
            except* RunError as errors:
                broke = str(first_of(errors))
            except* NetdflError as errors:
                raise first_of(errors) from errors
        broke = broke or fleet.close()
        return Outcome(
            time.monotonic() - began,
            loop.now_ns / NS_PER_S,
            log.hexdigest(),
            fleet.stalls.watch.to_result(),
            fleet.stalls.unfinished,
            fleet.interrupted,
            broke,
        )


def first_of(errors: BaseExceptionGroup[NetdflError]) -> NetdflError:
    """The first error of a group, however deep it lies."""
    inner = errors.exceptions[0]
    return first_of(inner) if isinstance(inner, BaseExceptionGroup) else inner


class SimulatedFleet:
    """One run in the simulated world."""

    def __init__(
        self,
        blueprint: Blueprint,
        directory: RunDirectory,
        loop: VirtualLoop,
        compute: ComputeTime,
        log: EventLog,
        status: FleetStatus,
        view: View,
    ) -> None:
        """Build all nodes; nothing runs yet."""
        scenario = blueprint.scenario
        self.blueprint, self.scenario, self.directory, self.loop = blueprint, scenario, directory, loop
        self.status, self.view, self.note = status, view, view.note
        self.clock = VirtualClock(loop)
        self.store = StoreWriter(directory.path, "fleet")
        self.recorder = LoggingRecorder(self.store, log)
        schedule = compile_schedule(scenario)
        directory.write_events([event.to_json() for event in schedule])
        world: Any = scenario.world
        tcp = default_table() if world.loss_layer == "packet" else None
        links = Links(build_links(scenario), blueprint.streams, schedule, tcp)
        clocked = any(event.at_ns is not None and event.action in ("set", "unset") for event in schedule)
        self.fabric = Fabric(self.clock, blueprint.streams.integer("ties"), links, changing=clocked)
        self.service = Service(getattr(scenario.task, "batching", "exact"))
        self.training = Training(self.clock, self.service.compute)
        self.evaluation = Evaluation(blueprint.evaluated, status, self.recorder, self.clock.now_ns, self.judge)
        self.interrupted = False
        self.over: asyncio.Future[None] | None = None
        self._shown = 0.0
        self.nodes = {i: SimulatedNode(self, i, compute) for i in blueprint.node_ids}
        self.faults = Faults(self, schedule)
        self.stalls = Stalls(self, schedule)
        loop.source, loop.on_idle = self.stalls, self.stalls.on_idle
        status.nodes |= {i: node.status for i, node in self.nodes.items()}
        partition = blueprint.problem.partition()
        if partition is not None:
            directory.write_json("partition.json", partition)

    async def run(self) -> None:
        """Run every node to its end, or until nothing can ever happen again."""
        self.over = asyncio.get_running_loop().create_future()
        self.store.event(0, None, 0, "start", nodes=len(self.nodes))
        async with asyncio.TaskGroup() as group:
            self.faults.begin(group)
            for node in self.nodes.values():
                node.start(group)
            await self.over
            for node in self.nodes.values():
                node.cancel()

    def close(self) -> str:
        """Settle what is in flight and close the record; return what went wrong, or nothing."""
        self.stalls.finish()
        self.service.close()
        try:
            self.fabric.leave(*self.nodes)
            self.store.event(self.loop.now_ns, None, self.status.rounds_done, "training", **self.service.summary())
            self.store.event(self.loop.now_ns, None, self.status.rounds_done, "finish")
            self.refresh()
            self.store.close()
            self.directory.write_json("fleet.json", self.status.to_json())
        except RunError as error:
            return str(error)
        return ""

    # ends

    def end(self) -> None:
        """Stop the run."""
        if self.over is not None and not self.over.done():
            self.over.set_result(None)

    def interrupt(self) -> None:
        """Ctrl-C: stop everything, keep what was recorded."""
        self.interrupted = True
        self.end()

    def node_ended(self) -> None:
        """A node has finished, crashed or died: judge what waits for nobody else, end after the last."""
        self.evaluation.look()
        server = self.blueprint.network.server
        if server is not None and self.nodes[server].status.phase is Phase.FINISHED:
            self.stalls.after_server(self.loop.now_ns)
        if not any(node.running for node in self.nodes.values()) and not self.faults.restart_due:
            self.end()

    # evaluation

    def judge(self, round: int, taken: Mapping[NodeId, Snapshot]) -> None:
        """Judge the average model of `round`."""
        local = self.scenario.evaluation.local
        most = local if isinstance(local, int) else sys.maxsize if local == "all" else 0
        read = {node: (lambda snapshot=snapshot: snapshot) for node, snapshot in taken.items()}
        problem = self.blueprint.problem
        figures = judge_average(read, problem.evaluate, problem.evaluate_local, most, push=self.blueprint.push)
        self.evaluation.judged(round, figures)

    # status

    def progressed(self) -> None:
        """Show the fleet, flush the record: a few times a second of the real clock."""
        now = time.monotonic()
        if now - self._shown >= SHOW_S:
            self.refresh()
            self.store.flush()
            self.directory.write_json("fleet.json", self.status.to_json())
            self._shown = time.monotonic()

    def refresh(self) -> None:
        """Bring the status up to date and show it."""
        ledgers = [node.ledger for node in self.nodes.values()]
        self.status.elapsed_s = self.loop.now_ns / NS_PER_S
        self.status.bytes_sent = sum(ledger.bytes_sent for ledger in ledgers)
        self.status.messages = sum((ledger.counts for ledger in ledgers), MessageCounts())
        self.view.update(self.status)


def compute_time(blueprint: Blueprint, directory: RunDirectory) -> ComputeTime:
    """What local rounds take, by the scenario's model; measures first where it says so."""
    world: Any = blueprint.scenario.world
    streams = blueprint.streams
    model: ComputeTime | Measured = world.compute.build(streams)
    if isinstance(model, Measured):
        path = directory.path / COMPUTE_FILE
        if not path.exists():  # else this run is resumed
            record(path, [measure(blueprint, node) for node in blueprint.node_ids])
        model = replay(path, model.scale)
    for node in blueprint.node_ids:
        model(node, 0)  # what it can't tell is said before the run
    slow = slow_nodes(streams, blueprint.scenario.nodes, **world.stragglers.model_dump()) if world.stragglers else {}
    found = model
    return (lambda node, round: round_ns(slow.get(node, 1.0) * found(node, round))) if slow else found


def measure(blueprint: Blueprint, node: NodeId) -> int:
    """What one local round of `node` takes on this machine, in nanoseconds."""
    if node == blueprint.network.server:
        return 0
    algorithm, task, view = (
        blueprint.algorithm,
        blueprint.problem.task(node, "cpu"),
        blueprint.view(node, 0, frozenset()),
    )
    state = first_state(task.initial(), algorithm, view)
    return time_ns(lambda: state.train(algorithm, task.data(0), view))


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """One thread and deterministic kernels, so that sums are made in one order whatever the machine."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector look seldom: a fleet keeps many objects, and few of them are in cycles."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
