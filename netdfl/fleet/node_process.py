"""A process of the fleet: one node (or a few), or the evaluator, attending at the launcher.

This is the first module that imports grpc, and it is imported in forked children only.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from netdfl.algorithms.base import NodeState
from netdfl.core.clock import NS_PER_S, RealClock
from netdfl.core.errors import NetdflError, RunError, TrainingError, TransportError
from netdfl.core.memory import keep_freed
from netdfl.core.types import NodeId, Role, View
from netdfl.diagnosis.outgoing import MOST_KEPT, Outgoing
from netdfl.fleet.build import Blueprint
from netdfl.fleet.evaluation import judge_snapshots, keep_model, snapshot_path, write_snapshot
from netdfl.fleet.node_life import Life
from netdfl.fleet.node_network import make_transport
from netdfl.fleet.node_stalls import Probed
from netdfl.fleet.rejoining import held_weight
from netdfl.fleet.workers import make_worker
from netdfl.links.events import CompiledEvent
from netdfl.node.ledger import NodeLedger
from netdfl.node.runtime import Node
from netdfl.node.worker import ThreadWorker
from netdfl.record.store import StoreWriter
from netdfl.transport.control import ControlClient
from netdfl.transport.v1 import control_pb2 as pb
from netdfl.transport.wire import PROTOCOL_VERSION

FLUSH_S = 0.25
EVALUATOR = -1
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

    async def attend(self, hello: pb.Hello) -> None:
        """Open the stream. Raises TransportError."""
        hello.pid, hello.protocol_version = os.getpid(), PROTOCOL_VERSION
        hello.scenario_hash = self.plan["scenario_hash"]
        self.control = await ControlClient.connect(
            self.plan["control"], self.plan["token"], hello, self.obey, lambda reason: self.stopped.set()
        )

    def obey(self, order: pb.Order) -> None:
        """Carry out one order."""
        kind = order.WhichOneof("order")
        getattr(self, "on_" + kind, lambda _: None)(getattr(order, kind))

    def on_stop(self, stop: pb.Stop) -> None:
        """End in good order."""
        self.stopped.set()

    def on_crash(self, crash: pb.Crash) -> None:
        """End at once."""
        os.kill(os.getpid(), signal.SIGKILL)

    def report(self, **reports: Any) -> None:
        """Tell the launcher."""
        if self.control is not None:
            self.control.report(pb.Report(**reports))


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
            await self.attend(pb.Hello(node_id=self.id, role=role.value, address=address, epoch=self.epoch))
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
        self.progress("end")
        await self.stopped.wait()

    def fail(self, error: BaseException) -> int:
        """Say what ended the node, by name."""
        kind = (
            "training_error"
            if isinstance(error, TrainingError)
            else "broke"
            if isinstance(error, RunError)
            else "failed"
        )
        reason = str(error) if isinstance(error, NetdflError) else f"{type(error).__name__}: {error}"
        self.report(
            event=pb.Event(
                at_ns=self.clock.now_ns(),
                round=max(self.node.round, 0),
                kind=kind,
                details=json.dumps({"reason": reason}),
            )
        )
        with suppress(OSError):  # the log may lie on the disk that is full
            print(f"node {self.id}: {reason}", file=sys.stderr)
            if not isinstance(error, NetdflError):
                traceback.print_exception(error)
        return {"broke": EXIT_DISK, "training_error": EXIT_TRAINING}.get(kind, 1)

    async def leave(self, code: int) -> None:
        """Settle what is in flight, flush, say goodbye."""
        crash = self.life.crashed_by
        if self.node.delivery is not None:
            self.node.delivery.close()
        await (self.transport.aclose() if crash is None else self.transport.hand_over())
        with suppress(RunError):
            self.life.leave()
            self.store.close()
        if self.control is not None:
            goodbye = pb.Bye(reason="done" if code == 0 else f"exit code {code}")
            self.report(bye=goodbye) if crash is None else self.report_crash(crash)
            with suppress(TransportError):
                await self.control.aclose()
        if crash is not None:
            await self.crash()

    def report_crash(self, crash: CompiledEvent) -> None:
        """Say that this is a crash that the schedule wants."""
        details = {
            "state": crash.parameters.get("state", "kept"),
            "source": crash.source,
            "at_round": crash.at_round,
            **held_weight(self.blueprint, self.node),
        }
        round = max(self.node.round, 0)
        # Not the time of now: while the node left, the moment of its return may have passed.
        event = pb.Event(at_ns=self.life.crashed_ns, round=round, kind="crash", details=json.dumps(details))
        self.report(event=event)

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
            self.progress("end" if self.finished else "train")

    def progress(self, phase: str) -> None:
        """Tell the launcher where this node stands."""
        loss = self.node.task.last_loss
        self.report(
            progress=pb.Progress(
                round=max(self.node.round, 0),
                phase=phase,
                train_loss=loss if loss == loss else None,
                at_ns=self.clock.now_ns(),
                bytes_sent=self.ledger.bytes_sent,
                messages=pb.MessageCounts(**asdict(self.ledger.counts)),
            )
        )

    async def begin_round(self, round: int) -> None:
        """Scripted events of this node's round happen here."""
        await self.life.script.begin_round(round)

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
            self.report(snapshot=pb.Snapshot(round=round, path=str(path)))
            self.due.task_done()

    def on_peers(self, peers: pb.Peers) -> None:
        """Learn where the others listen; before the start, who has no address is one that a resumed run left down."""
        for node, address in peers.addresses.items():
            if node != self.id:
                self.transport.set_peer(node, address)
        if not self.started.is_set():
            for node in sorted(set(self.blueprint.node_ids) - {self.id} - set(peers.addresses)):
                self.transport.set_gone(node)

    def on_start(self, start: pb.Start) -> None:
        """Begin at the common start."""
        self.clock.start_ns = start.start_ns
        self.life.begin()
        self.started.set()

    def on_gone(self, gone: pb.Gone) -> None:
        """Neither wait for the node nor send to it, until it returns."""
        if self.started.is_set():
            self.store.event(self.clock.now_ns(), self.id, max(self.node.round, 0), "gone", peer=gone.node_id)
        self.node.waits.set_gone(gone.node_id)
        self.transport.set_gone(gone.node_id)

    def on_probe(self, probe: pb.Probe) -> None:
        """Say what the node does now."""
        self.report(probe_reply=self.probed.answer(probe))

    def on_recover(self, recover: pb.Recover) -> None:
        """Go on after a stall, as the scenario wants it."""
        self.probed.recover(recover)

    def on_returned(self, back: pb.Returned) -> None:
        """The node is back, at a new address."""
        self.store.event(self.clock.now_ns(), self.id, max(self.node.round, 0), "returned", peer=back.node_id)
        self.transport.set_peer(back.node_id, back.address, back.epoch)
        self.node.waits.set_returned(back.node_id)


class Evaluator(Attendant):
    """Judges the average model of a round from the nodes' snapshots, and deletes them."""

    def __init__(self, blueprint: Blueprint, plan: dict[str, Any]) -> None:
        """Judge by the blueprint's problem."""
        super().__init__(plan)
        self.blueprint = blueprint
        self.queue: asyncio.Queue[pb.Evaluate] = asyncio.Queue()

    async def main(self) -> int:
        """Judge what is ordered, one round after the other, until stopped."""
        try:
            await self.attend(pb.Hello(node_id=EVALUATOR, role="evaluator"))
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

    def on_evaluate(self, order: pb.Evaluate) -> None:
        """Queue a round."""
        self.queue.put_nowait(order)

    async def work(self) -> None:
        """Judge, report, delete."""
        while True:
            order = await self.queue.get()
            paths = {node: Path(path) for node, path in sorted(order.paths.items())}
            figures = await asyncio.to_thread(judge_snapshots, self.blueprint, paths)
            self.report(evaluated=pb.Evaluated(round=order.round, json=json.dumps(figures)))
            for path in paths.values():
                path.unlink(missing_ok=True)
