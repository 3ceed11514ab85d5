"""The `processes` world: real gRPC nodes in local processes, started, watched and ended by a launcher.

The launcher takes no part in the training. It tells nodes each other's addresses and the common
start, takes their reports, tells survivors who is gone (the oracle), and has models judged.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import (
    EVALUATOR,
    Broke,
    Crashed,
    Evaluate,
    Evaluated,
    Gone,
    Happened,
    Hello,
    ModelSaved,
    Peers,
    ProbeReply,
    Progress,
    Report,
    Start,
    Stop,
)
from netdfl.core.errors import MachineError, RunError
from netdfl.core.fates import MessageCounts
from netdfl.core.types import NodeId
from netdfl.fleet.devices import spread
from netdfl.fleet.returns import Returns
from netdfl.fleet.spawn import Nursery, log_tail
from netdfl.fleet.stall_probes import StallProbes
from netdfl.record.judge import ExitCode
from netdfl.record.run import RunDirectory
from netdfl.record.status import ENDED, FleetStatus, NodeStatus, Phase
from netdfl.record.store import StoreWriter
from netdfl.scenario.loading.resolved import scenario_hash
from netdfl.scenario.model.schema import Scenario
from netdfl.supervisor.evaluation import Evaluation
from netdfl.transport.control import Attendee, ControlServer

if TYPE_CHECKING:
    from netdfl.fleet.resume import Resumption

STATUS_S = 0.5
GRACE_S = 5.0
INTERRUPT_GRACE_S = 1.2


@dataclass(frozen=True)
class Outcome:
    """How a fleet ended, beside what it recorded."""

    duration_s: float
    interrupted: bool = False
    broke: str = ""
    links: Mapping[str, Any] | None = None
    fidelity_missed: str = ""
    stalled: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    unfinished: Sequence[str] = ()


class Launcher:
    """One run in the `processes` world."""

    def __init__(
        self,
        scenario: Scenario,
        directory: RunDirectory,
        nursery: Nursery,
        status: FleetStatus,
        note: Callable[[str], None],
    ) -> None:
        """Run `scenario` into `directory`; keep `status` up to date, tell news to `note`."""
        self.scenario, self.directory, self.nursery = scenario, directory, nursery
        self.status, self.note = status, note
        self.store = StoreWriter(directory.path, "fleet")
        self.token = secrets.token_hex(16)
        self.control = ControlServer(self.token, self.on_report, self.on_lost)
        self.attendees: dict[NodeId, Attendee] = {}
        self.pids: dict[int, list[NodeId]] = {}
        self.changed = asyncio.Event()
        self.server_done_ns: int | None = None
        self.start_ns: int | None = None
        self.stopping = False
        self.interrupted = False
        self.broke = ""
        self.rounds_of: dict[NodeId, Progress] = {}
        self.devices: list[str] = []
        self.resumption: Resumption | None = None
        nodes = [scenario.nodes] if scenario.has_server else list(range(scenario.nodes))
        self.evaluation = Evaluation(nodes, status, self.store, self.now_ns, self.order_evaluation)
        self.returns = Returns(self)
        self.stalls = StallProbes(self, self.returns.events)

    # the course of a run

    async def run(self) -> Outcome:
        """Start the fleet, watch it to its end, stop it."""
        ended_ns: int | None = None
        ticking = asyncio.create_task(self.tick())
        try:
            await self.gather_fleet()
            self.begin()
            probing = asyncio.create_task(self.stalls.run())
            await self.until(lambda: self.all_ended or self.stalls.over)
            ended_ns = time.monotonic_ns()
            probing.cancel()
            self.stalls.finish()
            await self.until(lambda: self.evaluation.over or self.stalls.over)
        finally:
            await self.stop(INTERRUPT_GRACE_S if self.interrupted else GRACE_S)
            ticking.cancel()
            self.finish_record()
        took = (ended_ns or time.monotonic_ns()) - (self.start_ns or time.monotonic_ns())
        stalled, unfinished = self.stalls.watch.to_result(), self.stalls.unfinished
        return Outcome(took / NS_PER_S, self.interrupted, self.broke, stalled=stalled, unfinished=unfinished)

    async def gather_fleet(self) -> None:
        """Start every node and wait until all attend. Raises InputError, MachineError, RunError."""
        address = await self.control.start()
        plan = {
            "directory": str(self.directory.path),
            "scenario_directory": str(self.scenario.file.parent if self.scenario.file else "."),
            "control": address,
            "token": self.token,
            "run_id": secrets.token_hex(8),
            "scenario_hash": scenario_hash(self.scenario),
        }
        (self.directory.path / "snapshots").mkdir(exist_ok=True)
        found = await self.nursery.plan(plan, self.on_exit)
        if found["partition"] is not None:
            self.directory.write_json("partition.json", found["partition"])
        self.devices = spread(getattr(self.scenario.task, "device", "cpu"), found["gpus"], self.scenario.num_nodes)
        for nodes in self.processes():
            await self.spawn(nodes)
        self.pids[await self.nursery.spawn([EVALUATOR], "cpu")] = [EVALUATOR]
        world: Any = self.scenario.world
        try:
            async with asyncio.timeout(world.start_timeout / NS_PER_S):
                await self.until(lambda: len(self.attendees) == len(self.live) + 1)
        except TimeoutError:
            missing = sorted(self.live - set(self.attendees))
            raise MachineError(
                f"nodes {missing} did not start within {world.start_timeout / NS_PER_S:g} s; "
                f"their logs are in {self.directory.path / 'logs'}, world.start_timeout gives them longer"
            ) from None

    async def spawn(self, nodes: list[NodeId]) -> None:
        """Start the process of `nodes`; where the run is resumed, without those that are down for good."""
        resumption = self.resumption
        for node in nodes:
            down = resumption is not None and node in resumption.down
            self.status.nodes[node] = NodeStatus(node, phase=Phase.CRASHED if down else Phase.STARTING)
        up = [node for node in nodes if node in self.live]
        if not up:
            return
        epoch, rejoin = (0, None) if resumption is None else (resumption.epoch, resumption.rejoin)
        device = self.devices[up[0]]
        pid = await self.nursery.spawn(up, device, epoch, place=self.place(up), rejoin=rejoin)
        self.pids[pid] = up
        for node in up:
            self.status.nodes[node].pid = pid

    def processes(self) -> list[list[NodeId]]:
        """Which nodes share a process."""
        world: Any = self.scenario.world
        nodes, size = list(range(self.scenario.num_nodes)), world.nodes_per_process
        return [nodes[i : i + size] for i in range(0, len(nodes), size)]

    def place(self, nodes: list[NodeId]) -> Mapping[str, str]:
        """Where the process of `nodes` lives: here, but for worlds that say otherwise."""
        return {}

    def begin(self) -> None:
        """Tell everybody the addresses and the common start."""
        peers = Peers({n: a.hello.address for n, a in self.attendees.items() if n != EVALUATOR})
        resumption = self.resumption
        self.start_ns = time.monotonic_ns() + 20_000_000 - (0 if resumption is None else resumption.at_ns)
        for node, attendee in self.attendees.items():
            if node != EVALUATOR:
                attendee.order(peers)
                attendee.order(Start(self.start_ns))
                self.status.nodes[node].phase = Phase.RUNNING
                self.status.nodes[node].address = attendee.hello.address
        if resumption is None:
            self.store.event(0, None, 0, "start", nodes=self.scenario.num_nodes)
        else:
            self.returns.resumed(resumption)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`; an interrupt or a broken run ends the wait. Raises RunError."""
        while not condition() and not self.interrupted:
            if self.broke:
                raise RunError(self.broke)
            if self.nursery.ended.is_set():
                raise RunError("the process that started the nodes died, and the nodes with it")
            self.changed.clear()
            await self.changed.wait()

    def interrupt(self) -> None:
        """Ctrl-C: stop everything, keep what was recorded."""
        self.interrupted = True
        self.changed.set()

    async def stop(self, grace_s: float) -> None:
        """Ask everyone to end; kill what is left after the grace."""
        self.stopping = True
        self.returns.close()
        for attendee in self.attendees.values():
            attendee.order(Stop("the run is over", grace_s))
        try:
            async with asyncio.timeout(grace_s):
                while self.pids and not self.nursery.ended.is_set():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            pass
        self.nursery.close()
        await self.control.aclose()

    def finish_record(self) -> None:
        """Close the launcher's part of the store; delete snapshots that nobody judged.

        A directory that refuses it must not hide why the run ended.
        """
        try:
            if self.start_ns is not None:
                self.store.event(self.now_ns(), None, self.status.rounds_done, "finish")
            self.store.close()
            self.write_fleet()
        except RunError as error:
            self.broke = self.broke or str(error)
        with suppress(OSError):
            shutil.rmtree(self.directory.path / "snapshots")

    # what is known

    def now_ns(self) -> int:
        """The fleet's time."""
        return time.monotonic_ns() - self.start_ns if self.start_ns is not None else 0

    @property
    def live(self) -> set[NodeId]:
        """Nodes that run or have finished."""
        return {n for n, s in self.status.nodes.items() if s.phase not in (Phase.DIED, Phase.CRASHED)}

    @property
    def all_ended(self) -> bool:
        """Whether no node has rounds before it, nor will have."""
        return not self.returns.due and all(s.phase in ENDED for s in self.status.nodes.values())

    @property
    def server(self) -> NodeId | None:
        """The server, where there is one."""
        return self.scenario.nodes if self.scenario.has_server else None

    # news

    def on_report(self, attendee: Attendee, report: Report) -> None:
        """Take one report of a node or of the evaluator."""
        node = attendee.hello.node
        match report:
            case Hello():
                self.on_hello(attendee)
            case Progress():
                self.on_progress(node, report)
                if not report.ended:
                    return
            case ModelSaved():
                self.on_model(node, report)
            case Evaluated():
                self.evaluation.judged(report.round, report.figures)
            case ProbeReply():
                self.stalls.on_probe_reply(node, report)
            case Crashed():
                self.returns.crashed(node, report)
            case Broke():
                self.broke = self.broke or f"node {node}: {report.reason}"
            case Happened():
                self.on_happened(node, report)
        self.changed.set()

    def on_hello(self, attendee: Attendee) -> None:
        """A node attends, in its first life or in a later one."""
        self.attendees[attendee.hello.node] = attendee
        if attendee.hello.epoch and self.start_ns is not None:
            self.returns.attends(attendee)

    def on_progress(self, node: NodeId, progress: Progress) -> None:
        """Note where a node stands."""
        status = self.status.nodes[node]
        status.round = progress.round
        status.loss = progress.train_loss
        self.rounds_of[node] = progress
        self.stalls.on_progress(node, progress.round, self.now_ns())
        if progress.ended and status.phase is Phase.RUNNING:
            status.phase = Phase.FINISHED
            if node == self.server:
                self.server_done_ns = self.now_ns()
            self.evaluation.look()

    def on_model(self, node: NodeId, saved: ModelSaved) -> None:
        """A model is ready to be judged with the others of its round."""
        self.evaluation.saved(node, saved.round, saved.path)

    def order_evaluation(self, round: int, paths: Mapping[NodeId, str]) -> None:
        """Have the models of `round` judged."""
        self.attendees[EVALUATOR].order(Evaluate(round, paths))

    def on_happened(self, node: NodeId, event: Happened) -> None:
        """Record what a node says happened to it."""
        self.store.event(event.at_ns, node, event.round, event.kind, **event.details)
        self.note(f"node {node}, round {event.round}: {event.details.get('reason', event.kind)}")

    def on_lost(self, attendee: Attendee) -> None:
        """A stream ended; the nursery will say whether the process did."""
        self.changed.set()

    def on_exit(self, pid: int, code: int, signal: str | None) -> None:
        """A process of the fleet ended."""
        self.changed.set()
        nodes = self.pids.pop(pid, [])
        if self.stopping:
            return
        for node in nodes:
            self.lose(node, code, signal)

    def lose(self, node: NodeId, code: int, signal: str | None) -> None:
        """A process ended that nobody had asked to: say so, and tell the others if there is an oracle."""
        if node == EVALUATOR:
            self.broke = f"the evaluator ended ({signal or f'exit code {code}'}); see logs/evaluator.log"
            return
        if self.start_ns is None:
            self.broke = f"node {node} could not start: {log_tail(self.directory.path, node) or signal or code}"
            return
        self.returns.forget(node)
        status = self.status.nodes[node]
        status.phase = Phase.DIED
        if code == ExitCode.BROKE:
            self.broke = self.broke or f"node {node} broke: {log_tail(self.directory.path, node)}"
            return
        self.store.event(self.now_ns(), node, status.round, "died", signal=signal, exit_code=code)
        self.note(f"node {node} died in round {status.round}: {signal or f'exit code {code}'}")
        self.tell_gone(node, signal or f"exit code {code}")
        self.evaluation.look()

    @property
    def oracle(self) -> bool:
        """Whether nodes learn from the launcher who is gone."""
        return bool(self.scenario.failure_detector.kind == "oracle")

    def tell_gone(self, node: NodeId, reason: str) -> None:
        """Tell the others, if there is an oracle, that `node` is gone."""
        for other in self.live if self.oracle else ():
            self.attendees[other].order(Gone(node, reason))

    # the clockwork

    async def tick(self) -> None:
        """Write `fleet.json` and flush the record, twice a second."""
        while True:
            await asyncio.sleep(STATUS_S)
            try:
                self.update_counts()
                self.write_fleet()
                self.store.flush()
            except RunError as error:
                self.broke = str(error)
                self.changed.set()
            self.changed.set()

    def update_counts(self) -> None:
        """Add up the nodes' counters."""
        progress = self.rounds_of.values()
        self.status.elapsed_s = self.now_ns() / NS_PER_S
        self.status.bytes_sent = sum(p.bytes_sent for p in progress)
        self.status.messages = sum((p.messages for p in progress), MessageCounts())

    def write_fleet(self) -> None:
        """What `fleet.json` shows while the run goes on."""
        self.directory.write_json("fleet.json", self.status.to_json())
