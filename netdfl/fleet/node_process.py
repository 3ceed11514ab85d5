"""A process of the fleet: one node (or a few), or the evaluator, attending at the launcher.

This is the first module that imports grpc, and it is imported in forked children only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from netdfl.algorithms.base import NodeState
from netdfl.core.clock import NS_PER_S, RealClock
from netdfl.core.control import (
    EVALUATOR,
    Broke,
    Bye,
    Crashed,
    Evaluate,
    Evaluated,
    Gone,
    Happened,
    Hello,
    ModelSaved,
    Order,
    Peers,
    Probe,
    Progress,
    Recover,
    Report,
    Returned,
    Start,
    Stop,
)
from netdfl.core.errors import NetdflError, RunError, TrainingError, TransportError
from netdfl.core.malloc import keep_freed
from netdfl.core.types import NodeId, Role, View
from netdfl.diagnosis.outgoing import MOST_KEPT, Outgoing
from netdfl.fleet.build import Blueprint
from netdfl.fleet.evaluation import judge_snapshots, keep_model, snapshot_path, write_snapshot
from netdfl.fleet.node_life import Life
from netdfl.fleet.node_network import make_transport
from netdfl.fleet.node_stalls import Probed
from netdfl.fleet.rejoining import held_weight
from netdfl.fleet.workers import make_worker
from netdfl.links.schedule.events import CompiledEvent
from netdfl.node.ledger import NodeLedger
from netdfl.node.runtime import Node
from netdfl.node.worker import ThreadWorker
from netdfl.record.store import StoreWriter
from netdfl.transport.control import ControlClient
from netdfl.transport.wire import PROTOCOL_VERSION

FLUSH_S = 0.25
EXIT_TRAINING, EXIT_DISK, EXIT_LOST = 5, 4, 6


def run_process(blueprint: Blueprint, plan: dict[str, Any], command: dict[str, Any]) -> int:
    """Run the nodes that `command` names, or the evaluator, to the end; return the exit code."""
    torch.set_num_threads(1)
    keep_freed()
    worker = make_worker(blueprint, len(command["nodes"]))
    members = [
        Evaluator(blueprint, plan) if node == EVALUATOR else NodeProcess(blueprint, plan, node, command, worker)
        for node in command["nodes"]
    ]

    async def everyone() -> int:
        return max(await asyncio.gather(*(member.main() for member in members)))

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        code = runner.run(everyone())
    worker.close()
    return code


def loop_factory() -> Any:
    """The fast event loop where it is installed; None: the usual one."""
    with suppress(ModuleNotFoundError):
        import uvloop

        return uvloop.new_event_loop
    return None


class Attendant:
    """What nodes and the evaluator have in common: a stream to the launcher, and its orders."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        """Attend at the launcher that `plan` names."""
        self.plan = plan
        self.stopped = asyncio.Event()
        self.control: ControlClient | None = None

    async def attend(self, node: NodeId, role: str, address: str = "", epoch: int = 0) -> None:
        """Open the stream. Raises TransportError."""
        hello = Hello(
            node=node,
            role=role,
            pid=os.getpid(),
            address=address,
            scenario_hash=self.plan["scenario_hash"],
            protocol_version=PROTOCOL_VERSION,
            epoch=epoch,
        )
        self.control = await ControlClient.connect(
            self.plan["control"], self.plan["token"], hello, self.obey, lambda reason: self.stopped.set()
        )

    def obey(self, order: Order) -> None:
        """Carry out one order."""
        if isinstance(order, Stop):
            self.stopped.set()

    def report(self, report: Report) -> None:
        """Tell the launcher."""
        if self.control is not None:
            self.control.report(report)


class NodeProcess(Attendant):
    """One node in a process of its own, or beside a few others. A `Hooks`."""

    def __init__(
        self,
        blueprint: Blueprint,
        plan: dict[str, Any],
        node: NodeId,
        command: dict[str, Any],
        worker: ThreadWorker,
        services: Sequence[Any] = (),
    ) -> None:
        """Prepare `node`, whose server answers `services` beside messages; nothing runs yet."""
        super().__init__(plan)
        self.blueprint, self.id, self.worker = blueprint, node, worker
        self.epoch: int = command["epoch"]
        self.directory = Path(plan["directory"])
        self.clock = RealClock()
        self.store = StoreWriter(self.directory, f"{node:03d}")
        self.ledger = NodeLedger(node, self.clock, self.store)
        self.transport, meter = make_transport(blueprint, plan, command, node, self.clock, self.ledger, services)
        self.life = Life(blueprint, node, self.directory, self.clock, self.store, worker)
        self.alone = command["nodes"] == [node]
        keep = MOST_KEPT if blueprint.scenario.wait.on_stall == "resend" else 0
        self.outgoing = Outgoing(self.transport, self.clock, keep=keep)
        self.node: Node = blueprint.node(
            node,
            device=command["device"],
            transport=self.outgoing,
            clock=self.clock,
            worker=self.life.worker,
            recorder=self.store,
            ledger=self.ledger,
            hooks=self,
            epoch=self.epoch,
        )
        self.life.take(self.node, self.transport, meter, command["rejoin"])
        self.life.ask_peers(launched="control" in plan)
        self.started = asyncio.Event()
        self.finished = False
        self.probed = Probed(self.node, self.outgoing, self.life.gate, lambda: self.finished)
        self.due: asyncio.Queue[tuple[int, torch.Tensor, float]] = asyncio.Queue(maxsize=2)

    async def main(self) -> int:
        """Start, run, linger until the launcher says stop, leave."""
        try:
            address = await self.transport.start()
            role = Role.SERVER if self.id == self.blueprint.network.server else Role.CLIENT
            await self.attend(self.id, role.value, address, self.epoch)
        except NetdflError as error:
            print(error, file=sys.stderr)
            return EXIT_LOST
        code = await self.run()
        await self.leave(code)
        return code

    async def run(self) -> int:
        """Run the algorithm beside the clockwork; return the exit code."""
        works = (self.begin(), self.tick(), self.end(), self.crashed(), self.snapshots(), *self.life.background())
        tasks = [asyncio.create_task(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            errors = [task.exception() for task in done]
            return next((self.fail(error) for error in errors if error is not None), 0)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def end(self) -> None:
        """Return when the launcher says stop."""
        await self.stopped.wait()

    async def crashed(self) -> None:
        """Return when the schedule has this node crash, with the snapshots written of rounds that it had ended."""
        await self.life.crashing.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.blueprint.scenario.transport.close_grace / NS_PER_S):
                await self.due.join()

    async def begin(self) -> None:
        """Wait for the fleet's start, run every round, then keep answering neighbors until the end."""
        await self.started.wait()
        await self.clock.sleep_until(0)
        await self.life.gate.run(self.node.run())
        await self.due.join()
        self.finished = True
        self.progress()
        await self.stopped.wait()

    def fail(self, error: BaseException) -> int:
        """Say what ended the node, by name."""
        now, round = self.clock.now_ns(), max(self.node.round, 0)
        reason = str(error) if isinstance(error, NetdflError) else f"{type(error).__name__}: {error}"
        if isinstance(error, RunError):
            self.report(Broke(now, round, reason))
        else:
            kind = "training_error" if isinstance(error, TrainingError) else "failed"
            self.report(Happened(now, round, kind, {"reason": reason}))
        with suppress(OSError):  # the log may lie on the disk that is full
            print(f"node {self.id}: {reason}", file=sys.stderr)
            if not isinstance(error, NetdflError):
                traceback.print_exception(error)
        return EXIT_DISK if isinstance(error, RunError) else EXIT_TRAINING if isinstance(error, TrainingError) else 1

    async def leave(self, code: int) -> None:
        """Settle what is in flight, flush, say goodbye."""
        crash = self.life.crashed_by
        if self.node.delivery is not None:
            self.node.delivery.close()
        with suppress(RunError):
            self.store.flush()
        await (self.transport.aclose() if crash is None else self.transport.hand_over())
        with suppress(RunError):
            self.life.leave()
            self.store.close()
        if self.control is not None:
            goodbye = Bye("done" if code == 0 else f"exit code {code}")
            self.report(goodbye) if crash is None else self.report_crash(crash)
            with suppress(TransportError):
                await self.control.aclose()
        if crash is not None:
            await self.crash()

    def report_crash(self, crash: CompiledEvent) -> None:
        """Say that this is a crash that the schedule wants."""
        crashed = Crashed(
            at_ns=self.life.crashed_ns,  # not now: while the node left, the moment of its return may have passed
            round=max(self.node.round, 0),
            source=crash.source,
            at_round=crash.at_round,
            state=crash.parameters.get("state", "kept"),
            weight=held_weight(self.blueprint, self.node).get("weight"),
        )
        self.report(crashed)

    async def crash(self) -> None:
        """End as a crash does; beside other nodes in a process, without them."""
        if self.alone:
            os.kill(os.getpid(), signal.SIGKILL)
        await self.transport.aclose()

    async def tick(self) -> None:
        """Flush the record and report progress, a few times a second."""
        while True:
            await asyncio.sleep(FLUSH_S)
            self.store.flush()
            self.progress()

    def progress(self) -> None:
        """Tell the launcher where this node stands."""
        loss = self.node.task.last_loss
        self.report(
            Progress(
                round=max(self.node.round, 0),
                ended=self.finished,
                train_loss=loss if loss == loss else None,
                at_ns=self.clock.now_ns(),
                bytes_sent=self.ledger.bytes_sent,
                messages=self.ledger.counts,
            )
        )

    async def begin_round(self, round: int) -> None:
        """Scripted events of this node's round happen here."""
        await self.life.injection.begin_round(self.id, round)

    async def end_round(self, state: NodeState, view: View, weight: float) -> None:
        """Keep the state where it may be needed; have a snapshot written where one is due, beside the next round."""
        await self.life.end_round(state)
        if self.blueprint.evaluates(view.round) and self.id in self.blueprint.evaluated:
            await self.due.put((view.round, state.x, weight))
        if self.blueprint.keeps_models(view.round):
            await asyncio.to_thread(keep_model, self.directory, self.id, state.x, weight)

    async def snapshots(self) -> None:
        """Write the snapshots that are due; vectors are never written in place, so each stays as it was."""
        while True:
            round, x, weight = await self.due.get()
            path = snapshot_path(self.directory, round, self.id)
            try:
                await asyncio.to_thread(write_snapshot, path, x, weight)
            except OSError as error:
                raise RunError(f"{path} can't be written: {error.strerror}") from error
            self.report(ModelSaved(round, str(path)))
            self.due.task_done()

    def obey(self, order: Order) -> None:
        """Carry out one order."""
        match order:
            case Peers():
                self.on_peers(order)
            case Start():
                self.on_start(order)
            case Gone():
                self.on_gone(order)
            case Returned():
                self.on_returned(order)
            case Probe():
                self.report(self.probed.answer(order))
            case Recover():
                self.probed.recover(order)
            case _:
                super().obey(order)

    def on_peers(self, peers: Peers) -> None:
        """Learn where the others listen; before the start, who has no address is one that a resumed run left down."""
        for node, address in peers.addresses.items():
            if node != self.id:
                self.transport.set_peer(node, address)
        if not self.started.is_set():
            for node in sorted(set(self.blueprint.node_ids) - {self.id} - set(peers.addresses)):
                self.transport.set_gone(node)

    def on_start(self, start: Start) -> None:
        """Begin at the common start."""
        self.clock.start_ns, self.node.catch_up = start.start_ns, start.catch_up
        self.life.begin()
        self.started.set()

    def on_gone(self, gone: Gone) -> None:
        """Neither wait for the node nor send to it, until it returns."""
        if self.started.is_set():
            self.store.event(self.clock.now_ns(), self.id, max(self.node.round, 0), "gone", peer=gone.node)
        self.node.waits.set_gone(gone.node)
        self.transport.set_gone(gone.node)

    def on_returned(self, back: Returned) -> None:
        """The node is back, at a new address."""
        self.store.event(self.clock.now_ns(), self.id, max(self.node.round, 0), "returned", peer=back.node)
        self.transport.set_peer(back.node, back.address, back.epoch)
        self.node.waits.set_returned(back.node)


class Evaluator(Attendant):
    """Judges the average model of a round from the nodes' snapshots, and deletes them."""

    def __init__(self, blueprint: Blueprint, plan: dict[str, Any]) -> None:
        """Judge by the blueprint's problem."""
        super().__init__(plan)
        self.blueprint = blueprint
        self.queue: asyncio.Queue[Evaluate] = asyncio.Queue()

    async def main(self) -> int:
        """Judge what is ordered, one round after the other, until stopped."""
        try:
            await self.attend(EVALUATOR, "evaluator")
        except NetdflError as error:
            print(error, file=sys.stderr)
            return EXIT_LOST
        work = asyncio.create_task(self.work())
        stopped = asyncio.create_task(self.stopped.wait())
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            await work
        assert self.control is not None
        await self.control.aclose()
        work.cancel()
        return 0

    def obey(self, order: Order) -> None:
        """Queue a round, or stop."""
        if isinstance(order, Evaluate):
            self.queue.put_nowait(order)
        else:
            super().obey(order)

    async def work(self) -> None:
        """Judge, report, delete."""
        while True:
            order = await self.queue.get()
            paths = {node: Path(path) for node, path in sorted(order.paths.items())}
            figures = await asyncio.to_thread(judge_snapshots, self.blueprint, paths)
            self.report(Evaluated(order.round, figures))
            for path in paths.values():
                path.unlink(missing_ok=True)
