"""The supervisor: it starts a fleet, watches it, has its models evaluated, and ends it, in any world.

It takes no part in the training. It sends nodes each other's addresses and the common start, handles their reports,
informs survivors of gone nodes (the failure detector `oracle`), and has models evaluated. Each policy has a module of
its own here.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import (
    EVALUATOR,
    AskClock,
    Broke,
    ClockReading,
    CoreFlows,
    Crashed,
    Evaluate,
    Evaluated,
    Exit,
    FilePart,
    Happened,
    Hello,
    Life,
    ModelSaved,
    Peers,
    ProbeReply,
    Progress,
    Report,
    Start,
    Stop,
)
from netdfl.core.errors import MachineError, RunError
from netdfl.core.fates import FOREIGN, MALFORMED, FateReason
from netdfl.core.noticed import noticed_timeout
from netdfl.core.types import Json, NodeId, Scalar
from netdfl.core.versions import Versions
from netdfl.diagnosis.finding import by_verdict
from netdfl.node.ledger import RefusalLimiter
from netdfl.record.base import Store
from netdfl.record.directory import RunDirectory
from netdfl.record.judge import ExitCode
from netdfl.record.status import ENDED, FleetStatus, NodeStatus, Phase
from netdfl.record.store import StoreWriter
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import ProcessesOptions, RealOptions
from netdfl.supervisor.core_links import CoreLinkRates
from netdfl.supervisor.evaluation import EvaluationTracker
from netdfl.supervisor.fleet import FleetState
from netdfl.supervisor.mirror import mirror
from netdfl.supervisor.probing import ProbingWatch
from netdfl.supervisor.reports import ReportCheck
from netdfl.supervisor.restarts import Restarts
from netdfl.supervisor.resumption import Resumption
from netdfl.supervisor.showing import StatusReporter
from netdfl.supervisor.software import compare, software_of
from netdfl.supervisor.stalls import ExactWatch, StallWatch
from netdfl.worlds.base import Figures, OpenResult, VirtualWorld, World

GRACE_S = 5.0
INTERRUPT_GRACE_S = 1.2


@dataclass(frozen=True)
class FleetOutcome:
    """The outcome of a fleet's run, besides its record.

    `figures` has final counts of link rules and the hash of simulated events, `error` the reason if the run failed,
    else None. `stalled` has the stalls that were found, `unfinished` sentences on nodes that did not finish, `software`
    the nodes' software versions if they may differ from the supervisor's.
    """

    duration_s: float
    status: FleetStatus
    figures: Figures = field(default_factory=Figures)
    interrupted: bool = False
    error: Exception | None = None
    stalled: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    unfinished: Sequence[str] = ()
    software: Mapping[NodeId, Versions] = field(default_factory=dict)


class Supervisor:
    """The supervisor of one run, which handles the events of the world (simulated or real) where its nodes run."""

    def __init__(
        self,
        scenario: Scenario,
        directory: RunDirectory,
        world: World,
        *,
        note: Callable[[str], None],
        show: Callable[[FleetStatus], None],
        resumption: Resumption | None = None,
        store: Store | None = None,
    ) -> None:
        """Prepare to run `scenario` in `world` (simulated, processes, ...).

        `show` receives the status, `note` messages for the user. `store` keeps the record, by default in `directory`.
        """
        store = StoreWriter(directory.path, "fleet", scenario.record.sampling) if store is None else store
        status = FleetStatus(scenario.name, scenario.world.kind, scenario.algorithm.kind, scenario.rounds)
        self.fleet = fleet = FleetState(
            scenario=scenario, directory=directory, world=world, status=status, store=store, note=note
        )
        evaluated = fleet.nodes if fleet.server is None else [fleet.server]
        recorder = world.recorder(store)
        self.evaluation = EvaluationTracker(evaluated, status, recorder, fleet.now_ns, self._have_judged)
        self.restarts = Restarts(fleet, self.evaluation)
        self.stalls: StallWatch
        self._options = (
            scenario.world if isinstance(scenario.world, RealOptions) else ProcessesOptions.model_validate({})
        )
        if isinstance(world, VirtualWorld):
            self.stalls = ExactWatch(fleet, self.restarts, world)
            world.begins = self.begins
        else:
            self.stalls = ProbingWatch(fleet, self.restarts, self._options.stopped_after)
        virtual = isinstance(world, VirtualWorld)  # then all reports come from this process
        self._check = None if virtual else ReportCheck(fleet, self.restarts, evaluated)
        self.core_links = CoreLinkRates(fleet, self.refused)
        self.resumption = resumption
        self._refusal_limiter = RefusalLimiter()
        self.interrupted = self.stopping = False
        self._showing = StatusReporter(fleet, self.stalls, show)
        self._awaited: NodeId = 0
        self._last_words: dict[tuple[NodeId, int], str] = {}  # by node and start of its process
        if fleet.schedule:
            directory.write_events([event.to_json() for event in fleet.schedule])

    # the course of a run

    async def run(self) -> FleetOutcome:
        """Start the fleet, watch it to its end, and stop it. Raises InputError if it can't start."""
        ended_ns: int | None = None
        figures = Figures()
        beside = [] if isinstance(self.stalls, ExactWatch) else [asyncio.create_task(self._showing.tick())]
        fleet = self.fleet
        try:
            await self._gather()
            self._begin()
            self.stalls.begin()
            self.core_links.begin()
            await self._until(lambda: self._all_ended or self.stalls.over)
            ended_ns = time.monotonic_ns()
            self.stalls.close()
            self.stalls.finish()
            await self._until(lambda: self.evaluation.over or self.stalls.over)
        except RunError as error:
            fleet.error = fleet.error or error
        finally:
            figures = await self._stop(self._grace_s)
            for task in beside:
                task.cancel()
            self._finish_record()
        now_ns = ended_ns or time.monotonic_ns()
        before_ns = 0 if self.resumption is None else self.resumption.at_ns
        took_ns = max(before_ns, now_ns - (fleet.start_ns or now_ns))  # an interrupted run may end before its start
        stalled, left = by_verdict(self.stalls.history.findings), self.stalls.unfinished
        rest = (self.interrupted, fleet.error, stalled, left, software_of(fleet))
        return FleetOutcome(took_ns / NS_PER_S, fleet.status, figures, *rest)

    def interrupt(self) -> None:
        """Stop everything after Ctrl-C, and keep the record."""
        self.interrupted = True
        self.fleet.changed.set()

    async def _gather(self) -> None:
        """Start every node, and wait until all are connected. Raises InputError, MachineError, RunError."""
        fleet, resumption = self.fleet, self.resumption
        down = frozenset() if resumption is None else resumption.down
        absent = frozenset(fleet.joins) if resumption is None else resumption.absent
        life = Life() if resumption is None else resumption.life
        for node in fleet.nodes:
            phase = Phase.CRASHED if node in down else Phase.ABSENT if node in absent else Phase.STARTING
            fleet.status.nodes[node] = NodeStatus(node, phase=phase)
            fleet.epochs[node] = life.epoch
        found = await self._opened()
        if found.partition is not None:
            fleet.directory.write_json("partition.json", found.partition)
        for note in found.notes:
            fleet.note(note)
        if self.interrupted:
            return
        fleet.world.launch([node for node in fleet.nodes if node not in down | absent], life)
        timeout_s = self._options.start_timeout / NS_PER_S
        try:
            async with noticed_timeout(None if isinstance(self.stalls, ExactWatch) else timeout_s):
                await self._until(lambda: {EVALUATOR, *fleet.live} <= fleet.hellos.keys())
        except TimeoutError:
            missing = sorted(fleet.live - fleet.hellos.keys())
            raise MachineError(
                f"nodes {missing} did not start within {timeout_s:g} s; "
                f"their logs are in {fleet.directory.path / 'logs'}, world.start_timeout gives them longer"
            ) from None
        compare(fleet)

    async def _opened(self) -> OpenResult:
        """Open the world and return the result; if the run is interrupted first, cancel it and return an empty one."""
        opening = asyncio.create_task(self.fleet.world.open(self))
        opening.add_done_callback(lambda task: self.fleet.changed.set())
        await self._until(opening.done)
        if opening.done():
            return opening.result()
        opening.cancel()
        await asyncio.wait([opening])
        return OpenResult()

    def _begin(self) -> None:
        """Send each node the addresses of the others, the nodes that are gone, and the common start time."""
        fleet, resumption = self.fleet, self.resumption
        if self.interrupted:
            return
        peers = Peers({node: hello.address for node, hello in sorted(fleet.hellos.items()) if node != EVALUATOR})
        fleet.begun_s = time.monotonic()
        fleet.start_ns = fleet.world.begin(0 if resumption is None else resumption.at_ns)
        self._showing.begin()
        if resumption is None:
            fleet.store.event(0, None, 0, "start", nodes=len(fleet.nodes))
        for node in peers.addresses:
            status = fleet.status.nodes[node]
            status.phase, status.address = Phase.RUNNING, peers.addresses[node]
            fleet.world.order(node, peers)
        if resumption is not None:
            self.restarts.resumed(resumption)
        self.restarts.expect_absent()
        for node in peers.addresses:  # once it knows who is gone, or its first messages to them are lost
            fleet.world.order(node, Start(fleet.start_ns))

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true or the run is interrupted. Raises the error that ends the run, if any."""
        fleet = self.fleet
        while not self.interrupted:
            if fleet.error is not None:
                raise fleet.error
            if condition():
                return
            fleet.changed.clear()
            await fleet.changed.wait()

    @property
    def _grace_s(self) -> float:
        """The seconds that processes may take to end when ordered to; longer after a complete run."""
        if self.interrupted or self.fleet.error is not None:
            return INTERRUPT_GRACE_S if self.interrupted else GRACE_S
        return max(GRACE_S, self.stalls.may_be_stopped_ns() / NS_PER_S)

    async def _stop(self, grace_s: float) -> Figures:
        """Order every process to end, and close the world."""
        self.stopping = True
        self.stalls.close()
        self.restarts.close()
        self.core_links.close()
        for node in sorted(self.fleet.hellos):
            self.fleet.world.order(node, Stop("the run is over", grace_s))
        try:
            return await self.fleet.world.aclose(grace_s)
        except RunError as error:
            self.fleet.broke(error)
            return Figures()

    def _finish_record(self) -> None:
        """Close the supervisor's part of the record, and delete models (snapshots) left for evaluation.

        Errors of the disk must not hide why the run ended.
        """
        fleet = self.fleet
        try:
            if fleet.start_ns is not None:
                fleet.store.event(fleet.now_ns(), None, fleet.status.rounds_done, "finish")
            fleet.store.close()
            self._showing.write()
        except RunError as error:
            fleet.broke(error)
        with suppress(OSError):
            shutil.rmtree(fleet.directory.path / "snapshots")

    @property
    def _all_ended(self) -> bool:
        """Whether no node has rounds left to run, now or after a restart."""
        return not self.restarts.due and self._none_left()

    def _none_left(self) -> bool:
        """Return whether every node has ended.

        The search continues at the node that was running last, so that it visits each node once per run.
        """
        nodes, first, num = self.fleet.status.nodes, self._awaited, len(self.fleet.nodes)
        for index in range(first, first + num):
            if nodes[index % num].phase not in ENDED:
                self._awaited = index % num
                return False
        return True

    # news

    def report(self, node: NodeId, report: Report) -> None:
        """Handle a report of a node or of the evaluator; refuse a report that its sender can't honestly make."""
        if self._check is not None:
            try:
                self._check.check(node, report)
            except (TypeError, ValueError) as error:
                self._refuse(node, error)
                return
        match report:
            case Progress():
                self._on_progress(node, report)
                if not report.ended:
                    return
            case Hello():
                self._on_hello(report)
            case ModelSaved():
                self.evaluation.saved(node, report.round)
                return
            case Evaluated():
                self.evaluation.judged(report.round, report.figures)
            case ProbeReply():
                self._answered(node, report)
            case Crashed():
                self.core_links.forget(node)
                self.restarts.crashed(node, report)
            case CoreFlows():
                self.core_links.take(node, report)
                return
            case Broke():
                self.fleet.broke(RunError(f"node {node}: {report.reason}"))
            case AskClock(number):
                self.fleet.world.order(node, ClockReading(number, time.monotonic_ns()))
                return
            case FilePart():
                self._mirror(node, report)
                return
            case Happened():
                self._on_failure(node, report)
                self.fleet.store.event(report.at_ns, node, report.round, report.kind, **report.details)
                self.fleet.note(f"node {node}, round {report.round}: {report.details.get('reason', report.kind)}")
        self.fleet.changed.set()

    def begins(self, node: NodeId, round: int, train_loss: float | None) -> None:
        """Record, in virtual time, that a node begins a round; show the status from time to time."""
        self._stands(node, round, train_loss)
        self._showing.sometimes()

    def exited(self, node: NodeId, how: Exit) -> None:
        """Handle the end of a process, `how` it ended: record an unexpected one; the oracle informs other nodes."""
        fleet = self.fleet
        fleet.changed.set()
        if self.stopping or (node != EVALUATOR and self._is_old(node, how)):
            return
        if node == EVALUATOR:
            fleet.broke(RunError(f"the evaluator ended ({how.reason}); see logs/evaluator.log"))
        elif fleet.start_ns is None:
            fleet.broke(RunError(f"node {node} could not start: {how.lost or how.words or how.signal or how.code}"))
        else:
            self._lose(node, how)

    def came_back(self, node: NodeId, keeps: bool) -> None:
        """Let a dead node that something else restarted rejoin; `keeps`: with its stored state."""
        if not self.stopping and self.fleet.start_ns is not None:
            self.restarts.came_back(node, keeps)
            self.fleet.note(f"node {node} was started again")

    def refused(self, what: str, reason: FateReason = FOREIGN, src: NodeId | None = None) -> None:
        """Count and record a refused call from outside the fleet, or a report of node `src`; `what` describes it."""
        if messages := self._refusal_limiter.count(reason, src, what):
            details: dict[str, Scalar] = {"messages": messages} if messages > 1 else {}
            details |= {} if src is None else {"src": src}
            self.fleet.store.event(self.fleet.now_ns(), None, -1, "refused", reason=reason, what=what, **details)
            self.fleet.note(f"refused: {what}")

    def _refuse(self, node: NodeId, error: Exception) -> None:
        """Count and record a report that `node`, or the evaluator, can't honestly make; `error` says why."""
        who, src = ("the evaluator", None) if node == EVALUATOR else (f"node {node}", node)
        self.refused(f"{who} made a report that can't be: {error}", MALFORMED, src)

    def broke(self, error: Exception) -> None:
        """Record an error of the world that ends the run; ignore it if the run is being stopped already."""
        if not self.stopping:
            self.fleet.broke(error)

    def _is_old(self, node: NodeId, how: Exit) -> bool:
        known = self.restarts.has_died(node, how.epoch) and how.within_ns is None  # what was lost may end, too
        return how.epoch != self.fleet.epochs[node] or self.restarts.has_crashed(node, how.epoch) or known

    def _lose(self, node: NodeId, how: Exit) -> None:
        fleet, status = self.fleet, self.fleet.status.nodes[node]
        self.core_links.forget(node)
        self.restarts.died(node, how.within_ns)
        status.phase = Phase.DIED
        if how.code == ExitCode.BROKE:
            fleet.broke(RunError(f"node {node} broke: {how.words}"))
            return
        end = {"reason": how.lost} if how.lost else {"signal": how.signal, "exit_code": how.code}
        if (said := self._last_words.get((node, how.epoch))) is not None and not how.lost:
            end["reason"] = said
        fleet.store.event(fleet.now_ns(), node, status.round, "died", **end)
        fleet.note(f"node {node} died in round {status.round}: {how.reason}")
        fleet.tell_gone(node, how.reason)
        self.evaluation.look()

    def _on_hello(self, hello: Hello) -> None:
        """Handle the introduction (`Hello`) of a node or of the evaluator, at its first start or after a restart."""
        fleet = self.fleet
        fleet.hellos[hello.node] = hello
        if hello.node != EVALUATOR:
            fleet.status.nodes[hello.node].pid = hello.pid or None
        if hello.epoch and fleet.start_ns is not None:
            self.restarts.attends(hello)

    def _on_failure(self, node: NodeId, failure: Happened) -> None:
        """Take down in which round and by what error a node fails: it has reported no progress since a while ago."""
        status = self.fleet.status.nodes[node]
        if failure.round > status.round:
            self._stands(node, failure.round, status.loss)
        if failure.kind == "failed":
            self._last_words[node, self.fleet.epochs[node]] = str(failure.details.get("reason", ""))

    def _on_progress(self, node: NodeId, progress: Progress) -> None:
        """Record the progress of a node."""
        fleet, status = self.fleet, self.fleet.status.nodes[node]
        self._stands(node, progress.round, progress.train_loss)
        fleet.progress[node, fleet.epochs[node]] = progress
        if progress.ended and status.phase is Phase.RUNNING:
            status.phase = Phase.FINISHED
            self.evaluation.look()
            self.stalls.finished(node)

    def _stands(self, node: NodeId, round: int, train_loss: float | None) -> None:
        status = self.fleet.status.nodes[node]
        status.round, status.loss = round, train_loss
        self.restarts.reached(round)
        self.stalls.heard(node, round, self.fleet.now_ns())

    def _answered(self, node: NodeId, reply: ProbeReply) -> None:
        """Store the state that a node reports in answer to a probe; refuse a report that can't be true."""
        try:
            self.stalls.answered(node, reply)
        except (TypeError, ValueError) as error:
            self._refuse(node, error)

    def _mirror(self, node: NodeId, part: FilePart) -> None:
        """Write into the run directory a part of a file that a node without a shared disk has sent."""
        try:
            mirror(self.fleet.directory.path, node, part)
        except ValueError as error:
            self.refused(str(error), MALFORMED, node)
        except RunError as error:
            self.fleet.broke(error)

    def _have_judged(self, round: int, nodes: Sequence[NodeId]) -> None:
        """Order the evaluator to evaluate the models that `nodes` had at the end of `round`."""
        self.fleet.world.order(EVALUATOR, Evaluate(round, tuple(nodes)))
