"""A node without a supervisor: it writes its reports to its own record, and leaves when all nodes are done."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from math import isfinite
from typing import Any, cast

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import Broke, Crashed, Happened, Peers, Progress, Report, Start
from netdfl.core.errors import MachineError, TransportError
from netdfl.core.interrupts import ending_signals
from netdfl.core.process import keep_freed
from netdfl.core.types import NodeId
from netdfl.diagnosis.account import Account, stack_of, waits_in_vain
from netdfl.diagnosis.ending import AFTER_SERVER_NS, time_is_up
from netdfl.diagnosis.watch import Pace
from netdfl.host.blueprint import Blueprint
from netdfl.host.facts import port_fault
from netdfl.host.living import LivingNode, NodeConfig
from netdfl.host.network import Endpoint
from netdfl.host.node import EXIT_DISK
from netdfl.host.plan import spread
from netdfl.host.process import loop_factory
from netdfl.node.worker import ThreadWorker
from netdfl.record.directory import RunDirectory
from netdfl.record.judge import ExitCode
from netdfl.running.prepare import prepare
from netdfl.scenario.loading.identity import scenario_hash
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import Heartbeat
from netdfl.standalone.accounts import QUIET_NS, Accounts
from netdfl.standalone.metrics import NodeFigures, offered
from netdfl.standalone.record import CrashForm, NodeRecord, NodeStage
from netdfl.standalone.request import Request
from netdfl.standalone.start import NothingToRun, RunIdentity, StartNegotiation
from netdfl.transport.control.rendezvous import FINISHED, RUNNING, Line, Rendezvous
from netdfl.transport.security.identity import Identity

KILLED = 137
FAREWELL_S, FAREWELL_CALL_S = 0.2, 1.0
PATIENCE_S = 10.0
"""Seconds that a finished node waits for another one that no longer answers."""


def live(request: Request) -> int:
    """Run the node of `request`; return its exit code. Raises InputError if it could not start."""
    keep_freed()
    blueprint = Blueprint.of(_without_oracle(request.scenario))
    if not blueprint.plain:
        import torch

        torch.set_num_threads(1)
    say_what_is_missing(blueprint)
    directory = RunDirectory(request.directory)
    worker = ThreadWorker()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        code = runner.run(_live(request, blueprint, directory, worker))
    worker.close()
    return code


def _without_oracle(scenario: Scenario) -> Scenario:
    """Replace the failure detector `oracle` by heartbeats, because no supervisor tells the nodes who is gone."""
    if scenario.failure_detector.kind != "oracle":
        return scenario
    return scenario.model_copy(update={"failure_detector": Heartbeat.model_validate({})})


def say_what_is_missing(blueprint: Blueprint) -> None:
    """Print which parts of the scenario have no effect because the nodes have no supervisor."""
    scenario: Any = blueprint.scenario
    if scenario.world.loss_layer == "packet" and (scenario.links or scenario.events):
        print("links act on packets: this process applies none, something below it must", file=sys.stderr)
    if scenario.wait.on_stall == "resend":
        print(
            "only a supervisor knows which message was lost: wait.on_stall: resend does nothing here", file=sys.stderr
        )


async def _live(request: Request, blueprint: Blueprint, directory: RunDirectory, worker: ThreadWorker) -> int:
    stopping = _StopSignals()
    start = StartNegotiation(request, scenario_hash(request.scenario), blueprint.schedule, blueprint.versions)
    if why := port_fault(request.host, request.port):  # before the others are waited for, which may take long
        raise MachineError(f"node {request.node} can't listen on {request.host}:{request.port} ({why}): choose another")
    try:
        beginning = await start.find_beginning()
        await start.certify(beginning.life.epoch)
        prepare(request.scenario, directory)
        (directory.path / "snapshots").mkdir(exist_ok=True)
        node = StandaloneNode(request, blueprint, start, beginning, worker)
        with offered(request.metrics, NodeFigures.of(node.living, request.directory)):
            return await node.live(stopping)
    except NothingToRun as news:
        print(news, file=sys.stderr)
        return ExitCode.PASS
    except asyncio.CancelledError:
        return ExitCode.INTERRUPTED
    finally:
        await asyncio.gather(*(line.aclose() for line in start.lines.values()))


class _StopSignals:
    """The handlers of Ctrl-C, SIGTERM and SIGHUP.

    Before the start they cancel the waiting task, later they stop the node.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.stop: Callable[[], object] = task.cancel
        for number in ending_signals():
            asyncio.get_running_loop().add_signal_handler(number, lambda: self.stop())


class StandaloneNode:
    """One life of a node without a supervisor, from the start of its process to its end.

    The node decides itself when it is done, and writes the reports that others send to a supervisor to its own record.
    """

    launched = False

    def __init__(
        self,
        request: Request,
        blueprint: Blueprint,
        start: StartNegotiation,
        beginning: RunIdentity,
        worker: ThreadWorker,
    ) -> None:
        """Prepare the node; `beginning` has the run's id, and how often the node restarted before.

        `start` agrees with the other nodes on the fleet's start, `worker` runs the training.
        """
        self.request, self.start, self.blueprint, self.epoch = request, start, blueprint, beginning.life.epoch
        me = Identity(request.node, self.epoch, beginning.run_id, start.scenario_hash)
        self.meeting = Rendezvous(me, request.peers, start.versions)
        devices = spread(blueprint.scenario.device, _num_gpus(blueprint), blueprint.scenario.num_nodes)
        endpoint = Endpoint(
            listen=f"{request.host}:{request.port}",
            run_id=beginning.run_id,
            scenario_hash=start.scenario_hash,
            credentials=start.credentials,
            secret=request.secret,
        )
        birth = NodeConfig(
            node=request.node,
            life=beginning.life,
            device=devices[request.node],
            directory=request.directory,
            worker=worker,
            endpoint=endpoint,
            services=[self.meeting.service],
            hosted=(request.node,),
        )
        self.living = LivingNode(blueprint, birth, self)
        self.host, self.clock = self.living.host, self.living.clock
        self.meeting.round = lambda: self.host.round
        self.record = NodeRecord(
            node=request.node,
            run_id=beginning.run_id.hex(),
            epoch=self.epoch,
            scenario_hash=start.scenario_hash,
            pid=os.getpid(),
            versions=dict(start.versions),
            open=not request.secret.text,
        )
        self.quiet: Account | None = None
        self.done, self.stopped = asyncio.Event(), asyncio.Event()
        self.interrupted = False

    async def live(self, stopping: _StopSignals) -> int:
        """Run from opening the port to the end; return the exit code. Raises InputError if the node could not start.

        `stopping` has the signal handlers, which stop the node once it runs.
        """
        self.record.address = await self.living.transport.start()
        try:
            if not self.epoch:  # what a later life begins from is kept until it has begun
                self.write(NodeStage.GATHERING)
            neighbors = self.blueprint.possible_neighbors(self.request.node)
            await self.start.agree(self.meeting, neighbors, again=self.epoch > 0)
        except BaseException:
            await self.living.transport.aclose()
            raise
        stopping.stop = self.interrupt
        self.begin_together()
        code = await self.living.run()
        self.note_end()
        await self.living.leave(code)
        return self.exit_code(code)

    def begin_together(self) -> None:
        """Set the other nodes' addresses, and start at the agreed time."""
        assert self.meeting.start_ns is not None
        self.meeting.phase, self.meeting.on_restart = RUNNING, self.on_restart
        self.record.start_monotonic_ns = self.meeting.start_ns
        self.living.obey(Peers(self.request.peers))
        self.living.obey(Start(self.meeting.start_ns))
        if self.epoch:
            self.go_on_without_who_is_done()
        detector = self.blueprint.scenario.failure_detector.kind
        if detector != self.request.scenario.failure_detector.kind:
            self.host.tell("detector", detector=detector, instead_of=self.request.scenario.failure_detector.kind)
        if self.epoch:
            self.tell_of_last_life()
            self.host.tell("restart", epoch=self.epoch)
        self.write(NodeStage.RUNNING)

    def go_on_without_who_is_done(self) -> None:
        """Stop waiting for nodes that had finished when this process of the node began.

        Their messages reached an earlier process of this node, or will never arrive. With acknowledged delivery a
        finished node may still resend messages to this one; this one waits for it until it reports that none are left.
        """
        self.meeting.on_finished = self.hear_finished
        if self.blueprint.scenario.delivery.kind != "acknowledged":
            for peer, finished in self.meeting.finished.items():
                if finished.is_set():
                    self.hear_finished(peer, owes=False)

    def hear_finished(self, peer: NodeId, owes: bool) -> None:
        """Note that `peer` has finished; wait for it no more, unless it `owes` this node unacknowledged messages."""
        if not owes and peer not in self.host.node.waits.gone:
            self.host.tell("gone", peer=peer, detector="finished")
            self.host.node.waits.set_gone(peer)

    def owes(self, peer: NodeId) -> bool:
        """Return whether this node still sends `peer` unacknowledged messages."""
        delivery = self.host.node.delivery
        return delivery is not None and any(each[0] == peer for each in delivery.due_again)

    def tell_of_last_life(self) -> None:
        """Record that the node's previous process ended unplanned, since no other process has recorded that."""
        before = self.start.before
        if before is None:
            self.host.tell("died", reason="its record is gone, and it began again")
        elif before.stage is NodeStage.RUNNING:
            at_ns = int((before.at_s or 0) * NS_PER_S)
            reason = "it was killed, and began again"
            self.living.store.event(at_ns, self.request.node, before.round, "died", reason=reason)

    def interrupt(self) -> None:
        """Leave the fleet after SIGTERM or Ctrl-C, keeping the record."""
        self.interrupted = True
        self.stopped.set()

    def exit_code(self, code: int) -> int:
        """Return the exit code for the process; `code` is the exit code of the node's rounds, 0 without an error."""
        if self.record.stage is NodeStage.FINISHED:
            return ExitCode.PASS
        if code:
            return ExitCode.BROKE if code == EXIT_DISK else ExitCode.FAIL
        return ExitCode.INTERRUPTED

    # what a supervisor would do

    async def dismissed(self) -> None:
        """Return when this node is stopped or no longer needed."""
        await _first(self.stopped.wait(), self.over())

    async def over(self) -> None:
        """Return when all nodes are done and know that this one is; clients of a server are done when the server is."""
        server = self.blueprint.network.server
        if server is None or server == self.request.node:
            await self.done.wait()
        else:
            await _first(self.done.wait(), self.server_done(server))
        self.meeting.phase = FINISHED
        self.write(NodeStage.FINISHED)
        await self.farewell()

    async def server_done(self, server: NodeId) -> None:
        """Return when the server is done, and this client has nothing left to do or no time left."""
        await self.confirmed(server)
        done_ns, pace = self.clock.now_ns(), Pace([self.request.node])
        pace.at(self.request.node, self.host.round, done_ns)
        while True:
            await asyncio.sleep(AFTER_SERVER_NS / NS_PER_S)
            if waits_in_vain(self.account(), server) or time_is_up(done_ns, self.clock.now_ns(), pace):
                return

    async def confirmed(self, server: NodeId) -> None:
        """Return when the server, asked at its own address, says that it is done, or has said so and no longer answers.

        A call in the server's name is no proof: any process could make one.
        """
        finished, silent_since = self.meeting.finished[server], 0.0
        while True:
            await finished.wait()
            try:
                reply = await self.start.lines[server].ask(self.meeting.call(), FAREWELL_CALL_S)
            except TransportError:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > self.patience_s(server):
                    return
            else:
                if reply.answer.phase == FINISHED:
                    return
                silent_since = 0.0
                finished.clear()
            await asyncio.sleep(FAREWELL_S)

    async def farewell(self) -> None:
        """Tell all nodes that this one is done, and stay until they are done or no longer answer."""
        await asyncio.gather(*(self.see_off(node, line) for node, line in self.start.lines.items()))

    async def see_off(self, peer: NodeId, line: Line) -> None:
        """Tell `peer` by the connection `line` that this node is done; return when the peer is done too.

        Return as well when the peer has been silent for too long.
        """
        told, silent_since, finished = False, None, self.meeting.finished[peer]
        while not (told and finished.is_set()):
            call = self.meeting.call()
            call.owes = self.owes(peer)
            try:
                reply = await line.ask(call, FAREWELL_CALL_S)
            except TransportError:
                silent_since = silent_since or time.monotonic()
                if finished.is_set() or time.monotonic() - silent_since > self.patience_s(peer):
                    return
            else:
                told, silent_since = True, None
                if reply.answer.phase == FINISHED:
                    finished.set()
            await asyncio.sleep(FAREWELL_S)

    def patience_s(self, peer: NodeId) -> float:
        """Return the seconds of silence after which `peer` counts as gone: more if the schedule will restart it."""
        now = self.clock.now_ns()
        due = [
            event.after_ns if event.at_ns is None else event.at_ns - now
            for event in self.blueprint.schedule
            if event.action == "restart" and peer in event.nodes
        ]
        return PATIENCE_S + max([0, *due]) / NS_PER_S

    def on_restart(self, node: NodeId, epoch: int) -> None:
        """Reconnect to `node`, which has restarted."""
        self.living.transport.set_peer(node, self.request.peers[node], epoch)

    # what goes to a supervisor elsewhere

    def report(self, report: Report) -> None:
        """Write a report, which other nodes would send to a supervisor, to this node's own record."""
        match report:
            case Progress():
                self.note_progress(report)
            case Broke():
                self.record.reason = report.reason
                self.write(NodeStage.BROKE)
            case Happened():
                self.record.reason = str(report.details["reason"])
                self.write(NodeStage.FAILED)
                kind = "died" if report.kind == "failed" else report.kind
                self.living.store.event(report.at_ns, self.request.node, report.round, kind, **report.details)
            case _:
                pass  # nobody else needs to know it

    def note_progress(self, progress: Progress) -> None:
        """Record the progress of this node."""
        self.notice_wait()
        if progress.ended:
            self.done.set()
        elif progress.round != self.record.round:
            self.write(self.record.stage)

    def notice_wait(self) -> None:
        """Save an account of the node's state once its current wait for messages has become long."""
        wait = self.host.node.waits.current
        if wait is None or self.clock.now_ns() - wait.since_ns < QUIET_NS:
            self.quiet = None
        elif self.quiet is None:
            self.quiet = self.account()
            Accounts(self.quiet, self.quiet).write(self.request.directory)

    def account(self) -> Account:
        """Return an account of this node: its state and round, its wait for messages, and its call stack."""
        return Account.from_json(self.host.account(stack=stack_of(self.host.gate.coroutine)).to_json())

    def write(self, stage: NodeStage) -> None:
        """Write the current state to `node.json`, with `stage`: how far the node has come."""
        self.record.stage, self.record.round = stage, self.host.round
        loss = self.host.node.task.last_loss
        self.record.loss = loss if isfinite(loss) else None
        if self.record.start_monotonic_ns is not None:
            self.record.at_s = self.clock.now_ns() / NS_PER_S
        self.record.write(self.request.directory)

    def note_end(self) -> None:
        """Record how this process of the node ended, before leaving the network."""
        if self.host.crash is not None:
            crash = self.host.crash
            self.record.crash = cast(CrashForm, crash.details() | {"at_ns": crash.at_ns})
            self.write(NodeStage.CRASHED)
            self.living.store.event(crash.at_ns, self.request.node, crash.round, "crash", **crash.details())
        elif self.interrupted and self.record.stage is NodeStage.RUNNING:
            self.write(NodeStage.STOPPED)
        Accounts.of(self.quiet, self.account()).write(self.request.directory)

    async def flushed(self) -> None:
        """Return immediately, because reports are written at once."""

    async def part(self, code: int, crash: Crashed | None) -> None:
        """End the process at once if the node crashed as scheduled (`crash` is not None).

        It does not send itself a signal, which would not reach the first process of a container.
        """
        if crash is not None:
            os._exit(KILLED)


def _num_gpus(blueprint: Blueprint) -> int:
    """Return the number of GPUs here; 0 if nothing needs torch, which may then be missing."""
    if blueprint.plain:
        return 0
    import torch

    return int(torch.cuda.device_count())


async def _first(*works: Coroutine[Any, Any, Any]) -> None:
    """Return when the first of `works` returns, and cancel the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
