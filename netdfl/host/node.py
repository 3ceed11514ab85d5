"""One node on its machine, in virtual and in real time alike: its scheduled events, orders and restarts.

A driver hands over the parts, calls `live` once the fleet's time has begun, and gets a call when the schedule has the
node crash. All else that concerns the node happens here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from netdfl.algorithms.base import NodeState
from netdfl.algorithms.families import first_state
from netdfl.core.clock import Clock
from netdfl.core.control import (
    Broke,
    Crashed,
    Gone,
    Happened,
    Life,
    Order,
    Peers,
    Probe,
    ProbeReply,
    Progress,
    Recover,
    Rejoin,
    Report,
    Returned,
    Start,
)
from netdfl.core.errors import NetdflError, RunError, TrainingError
from netdfl.core.fates import FOREIGN
from netdfl.core.types import Message, NodeId, Scalar, View
from netdfl.core.whose import telling_theirs, theirs
from netdfl.diagnosis.account import Account, Flying, give_account, stack_of
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.outgoing import MOST_KEPT, OutgoingMessages
from netdfl.diagnosis.probing import AFTER_NS, DeadlockProber
from netdfl.host.blueprint import Blueprint
from netdfl.host.comparison import NO_COMPARISON
from netdfl.host.injection import FaultInjection
from netdfl.host.kept import StateKeeper
from netdfl.host.models import Models
from netdfl.host.network import NodeTransport, PausableSink
from netdfl.host.workers import PacedWorker
from netdfl.links.schedule.events import CompiledEvent
from netdfl.node.delivery import AcknowledgingTransport
from netdfl.node.heartbeats import Heartbeats
from netdfl.node.ledger import NodeLedger
from netdfl.node.pause import PauseGate
from netdfl.node.remembered import Remembered, recall
from netdfl.node.shares import weight_in
from netdfl.record.base import Recorder
from netdfl.record.shares import UNACKNOWLEDGED, UNTAKEN
from netdfl.training.base import NOTHING

EXIT_TRAINING, EXIT_DISK = 5, 4


@dataclass(frozen=True, kw_only=True)
class NodeParts:
    """The parts that a node's host gets from its environment, which is a simulation or a real process.

    `recorder` records what the node does, `journal` what happens to it. `report` sends reports to the supervisor.
    `elsewhere`, if given, carries out changes of links due in this node's rounds. `begins`, used where time is virtual,
    is called with each round and the last train loss. `launched`: whether a supervisor watches the fleet.
    """

    clock: Clock
    device: str
    transport: NodeTransport
    outgoing: OutgoingMessages
    ledger: NodeLedger
    worker: PacedWorker
    recorder: Recorder
    journal: Recorder
    kept: StateKeeper
    models: Models
    report: Callable[[Report], None]
    elsewhere: Callable[[CompiledEvent], None] | None = None
    begins: Callable[[int, float | None], None] | None = None
    launched: bool = True


def most_kept(blueprint: Blueprint) -> int:
    """Return the number of sent messages that a node keeps, so that it can send one again if the fleet stalls."""
    return MOST_KEPT if blueprint.scenario.wait.on_stall == "resend" else 0


class NodeHost:
    """One node from a start to its end or crash: its scheduled events, orders, and the hooks that its runtime calls."""

    admits: ClassVar[bool] = False
    """Whether messages are checked in virtual time too, where no stranger can send any; tests set it to true."""

    def __init__(
        self, blueprint: Blueprint, node: NodeId, life: Life, parts: NodeParts, crashed: Callable[[], None]
    ) -> None:
        """Prepare `node`, with `life.epoch` restarts before; `crashed` is called when it crashes by the schedule."""
        self.blueprint, self.id, self.life, self.parts = blueprint, node, life, parts
        self.clock, self.report, self.worker = parts.clock, parts.report, parts.worker
        self.worker.factor = 1.0
        self.gate = PauseGate()
        self.started = asyncio.Event()
        self.finished = self._has_met = False
        self.crash: Crashed | None = None
        self._crashed = crashed
        self._remembered: Remembered | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self.injection = FaultInjection(self._events(), parts.clock, self.happen)
        mailbox = blueprint.mailbox()
        admission = blueprint.admission(node, mailbox) if self.admits or parts.begins is None else None
        compared = NO_COMPARISON if admission is None else blueprint.compared
        self.door = PausableSink(mailbox, admission, self._refuse, compared)
        self.node = blueprint.node(
            node,
            device=parts.device,
            transport=parts.outgoing,
            clock=parts.clock,
            worker=parts.worker,
            recorder=parts.recorder,
            ledger=parts.ledger,
            hooks=self,
            mailbox=mailbox,
            sink=self.door,
            saves=parts.kept.saves,
            still=self._stands_still,
            epoch=life.epoch,
        )
        self.node.heartbeats = self._make_heartbeats()
        self.probing = self._make_probing()
        if life.rejoin is not None:
            self._rejoin(life.rejoin)

    def _refuse(self, message: Message, why: str) -> None:
        self.parts.ledger.refused((message.src, self.id), FOREIGN, why, message.round)

    def _events(self) -> list[CompiledEvent]:
        """Return the scheduled events of this node, including link changes if they are applied in this process."""
        own = self.blueprint.events_of(self.id)
        return own if self.parts.elsewhere is not None else [event for event in own if not event.acts_on_links]

    def _stands_still(self) -> bool:
        return self.gate.closed

    # its course

    def begin(self, start: Start) -> None:
        """Start the node: the fleet's time begins now or, if this is a restart, began earlier."""
        self.node.catch_up, self.node.without = start.catch_up, start.without
        if self._remembered is not None:
            recall(self.node, self._remembered)
        self.injection.begin(None if self.node.kept is None else self.node.kept.round)
        self.parts.transport.begin()
        if self.id == self.life.epoch == 0 and self.blueprint.scenario.world.kind != "simulated":
            self.parts.journal.event(self.clock.now_ns(), self.id, 0, "bounds", **self.blueprint.bounds.to_json())
        for gone in sorted(self.node.waits.gone) if self.life.epoch == 0 else ():
            self.tell("gone", peer=gone)
        self.started.set()

    async def live(self) -> None:
        """Run every remaining round. Raises TrainingError or RunError, also where a user's own code raised."""
        try:
            with telling_theirs(lambda: f"round {self.round}: "):
                await self.gate.run(self.node.run())
        finally:
            if came := self.door.digests:
                self.parts.journal.event(self.clock.now_ns(), self.id, self.round, "came", digests=came)
        await self.parts.models.delivered()
        self.finished = True
        self.progress()

    def beside(self) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
        """Yield the coroutines that run concurrently with the node, from the common start on."""
        if self.node.heartbeats is not None:
            yield self.node.heartbeats.run
        if self.probing is not None:
            yield self.probing.run

    def fall_silent(self) -> None:
        """Cancel the node's scheduled events, and no longer repeat unacknowledged messages."""
        self.injection.end()
        if self.node.delivery is not None:
            self._record_open(self.node.delivery)
            self.node.delivery.close()

    def _record_open(self, delivery: AcknowledgingTransport) -> None:
        """Record push-sum shares that were never acknowledged, to receivers that may lose their state in a crash."""
        for message in delivery.untaken() if self.blueprint.push else ():
            if self.blueprint.loses_state(message.dst):
                details = {"dst": message.dst, "step": message.step, "weight": weight_in((message.payload,))}
                self.parts.recorder.event(self.clock.now_ns(), self.id, message.round, UNACKNOWLEDGED, **details)

    def fail(self, error: BaseException) -> int:
        """Report the error that ended the node; return its exit code."""
        error = self.told(error)
        reason = str(error) if isinstance(error, NetdflError) else f"{type(error).__name__}: {error}"
        if isinstance(error, RunError):
            self.report(Broke(self.clock.now_ns(), self.round, reason))
            return EXIT_DISK
        kind = "training_error" if isinstance(error, TrainingError) else "failed"
        self.report(Happened(self.clock.now_ns(), self.round, kind, {"reason": reason}))
        return EXIT_TRAINING if kind == "training_error" else 1

    def told(self, error: BaseException) -> BaseException:
        """Return the error to report: an OwnCodeError if a user's own code raised it, else the error itself."""
        return theirs(error, f"round {self.round}: ") or error

    @property
    def round(self) -> int:
        """The current round, or the first one before the start; after the end, the last round."""
        if self.node.round >= 0 or self.node.kept is None:
            return max(self.node.round, 0)
        return min(self.node.kept.round, self.node.num_rounds - 1)

    def progress(self) -> None:
        """Report the node's progress to the supervisor."""
        ledger = self.parts.ledger
        self.report(
            Progress(
                round=self.round,
                ended=self.finished,
                train_loss=self._train_loss,
                at_ns=self.clock.now_ns(),
                bytes_sent=ledger.bytes_sent,
                messages=ledger.counts,
            )
        )

    @property
    def _train_loss(self) -> float | None:
        loss = self.node.task.last_loss
        return loss if loss == loss else None

    # hooks

    async def begin_round(self, round: int) -> None:
        """Carry out the events scheduled for this round of the node."""
        if self.parts.begins is not None:
            self.parts.begins(round, self._train_loss)
        elif round in self.blueprint.join_rounds:
            self.progress()  # now, as a node joins by it
        self.door.prepare(round)
        await self.injection.begin_round(round)

    async def end_round(self, state: NodeState, view: View, weight: float) -> None:
        """Store the state if it may be needed, and hand over the model if it is to be evaluated or saved."""
        cpu_s, self.worker.cpu_s = self.worker.cpu_s, None
        if cpu_s is not None and self.parts.device == "cpu":
            self.parts.recorder.metrics(self.clock.now_ns(), self.id, view.round, {"train_cpu_s": cpu_s})
        await self.parts.kept.save(self.node, state)
        whole = getattr(self.node.task, "whole", None)  # of a model with buffers
        x, kept = (state.x, NOTHING) if whole is None else whole(state.x, state.statistics, weight)
        await self._judge_own(view, state, weight)
        if self.blueprint.evaluates(view.round) and self.id in self.blueprint.evaluated:
            await self.parts.models.judge(view.round, x, weight, kept)
        if self.blueprint.keeps_models(view.round):
            await self.parts.models.keep(x, weight, kept)

    async def _judge_own(self, view: View, state: NodeState, weight: float) -> None:
        """Record metrics of the node's model on its own held-out examples, if only this node has its data."""
        judge = getattr(self.node.task, "judge_own", None)
        if judge is not None and self.blueprint.evaluates(view.round):
            figures = await self.worker.run("judge", judge, state.x, weight)
            self.parts.recorder.metrics(self.clock.now_ns(), self.id, view.round, figures)

    # orders

    def obey(self, order: Order) -> None:
        """Carry out an order; the order `Stop` is handled by the driver."""
        match order:
            case Peers(addresses):
                self._meet(addresses)
            case Start():
                self.begin(order)
            case Gone(node):
                self._lose(node)
            case Returned():
                self._welcome(order)
            case Probe(number):
                self.report(ProbeReply(number, self.account(stack=stack_of(self.gate.coroutine)).to_json()))
            case Recover():
                self._recover(order)

    def _meet(self, addresses: Mapping[NodeId, str]) -> None:
        """Store the addresses of the other nodes.

        A node that the first list lacks was down when the run was resumed, so it is gone.
        """
        for node, address in addresses.items():
            if node != self.id:
                self.parts.transport.set_peer(node, address)
        if not self._has_met:
            for node in sorted(set(self.blueprint.node_ids) - {self.id} - set(addresses)):
                self.parts.transport.set_gone(node)
        self._has_met = True

    def _lose(self, node: NodeId) -> None:
        """Stop waiting for `node` and sending to it, until it returns."""
        if self.started.is_set():
            self.tell("gone", peer=node)
        self.node.waits.set_gone(node)
        self.parts.transport.set_gone(node)

    def _welcome(self, back: Returned) -> None:
        """Resume exchange with a returned node at its new address."""
        self.tell("returned", peer=back.node)
        self.parts.transport.set_peer(back.node, back.address, back.epoch)
        if back.first:
            self.node.without = {**self.node.without, back.node: back.first - 1}
        self.node.waits.set_returned(back.node)

    def _recover(self, order: Recover) -> None:
        """Stop waiting for the nodes that `order` names, and send again the messages that it names, if still kept."""
        if order.skip:
            self.node.waits.skip(frozenset(order.skip))
        for again in order.again:
            if self.parts.outgoing.can_send_again(again.sent):
                task = asyncio.get_running_loop().create_task(self.parts.outgoing.send_again(again.sent))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)

    def account(self, *, ended: bool = False, flying: Flying | None = None, stack: str = "") -> Account:
        """Return an account of what the node does or waits for now, with `flying` (messages) and `stack` (calls)."""
        return give_account(
            self.node,
            self.parts.outgoing,
            finished=self.finished,
            ended=ended,
            paused=self.gate.closed,
            resumes_ns=self.injection.due_ns("resume"),
            flying=flying,
            stack=stack,
        )

    # what the schedule does

    def happen(self, event: CompiledEvent) -> None:
        """Carry out a scheduled event."""
        match event.action:
            case "crash":
                self._crash(event)
            case "pause":
                self.tell("pause")
                self._stand()
            case "resume":
                self._resume()
            case "slow_down":
                self.worker.factor = float(event.parameters["factor"])
                self.tell("slow_down", factor=self.worker.factor)
            case _ if self.parts.elsewhere is not None:
                self.parts.elsewhere(event)

    def _crash(self, event: CompiledEvent) -> None:
        """Stop the node until it restarts, if it ever does: no computing, reading or sending."""
        if self.crash is None:
            at_ns = self.clock.now_ns() if event.at_ns is None else event.at_ns
            self.crash = Crashed(
                at_ns=at_ns,
                round=self.round,
                source=event.source,
                at_round=event.at_round,
                state=self.blueprint.state_after(self.id, event, at_ns),
                weight=self.blueprint.held_weight(self.node),
            )
            if self.crash.weight is not None and self.node.delivery is not None:
                self._give_up_shares(self.node.delivery, self.crash.state)
            self._stand()
            self._crashed()

    def _give_up_shares(self, delivery: AcknowledgingTransport, state: str) -> None:
        """Record the push-sum shares lost in this crash, from which the node restarts with state "kept" or "lost"."""
        if state == "lost":
            delivery.abandon()
            return
        now = self.clock.now_ns()
        for src, (_, (round, step), _) in delivery.unsaved():
            self.parts.recorder.event(now, self.id, round, UNTAKEN, src=src, step=step)

    def _resume(self) -> None:
        """Continue after a pause, unless the node has crashed."""
        if self.crash is None:
            self.tell("resume")
            self.door.open()
            self.worker.resume()
            self.node.waits.went_on_ns = self.clock.now_ns()
            self.gate.open()

    def _stand(self) -> None:
        """Stop computing and reading, without losing anything, for a pause or a crash."""
        self.gate.close()
        self.worker.pause()
        self.door.close()

    # a later life

    def _rejoin(self, rejoin: Rejoin) -> None:
        node, view = self.node, self.blueprint.view(self.id, rejoin.round, frozenset())
        state = first_state(node.task.initial(), node.algorithm, view)
        if rejoin.keep_state:
            state, self._remembered = self.parts.kept.load(state)
            if self._remembered is None and self.blueprint.push:  # it crashed in its first round, and makes that again
                node.leave_out((0, self.blueprint.absent_at_first - {self.id}))
        node.kept = state._replace(round=max(state.round, rejoin.at_least))
        if not rejoin.keep_state:
            node.joining = self.blueprint.joining(self.id, node.kept.round, rejoin.weight)
            if node.delivery is not None:
                node.delivery.join_at(node.kept.round)

    # a failure detector of the nodes' own, and deadlocks that they find alone

    def _make_heartbeats(self) -> Heartbeats | None:
        detector: Any = self.blueprint.scenario.failure_detector
        if detector.kind != "heartbeat":
            return None
        return Heartbeats(
            self.id,
            self.blueprint.possible_neighbors(self.id),
            every_ns=detector.every,
            misses=detector.misses,
            clock=self.clock,
            transport=self.parts.transport,
            mailbox=self.node.mailbox,
            gone=self._silent,
            returned=self._heard,
            still=self._stands_still,
            epoch=self.life.epoch,
        )

    def _silent(self, peer: NodeId) -> None:
        self.tell("gone", peer=peer, detector="heartbeat")
        self.node.waits.set_gone(peer)

    def _heard(self, peer: NodeId) -> None:
        self.tell("returned", peer=peer, detector="heartbeat")
        self.node.waits.set_returned(peer)

    def _make_probing(self) -> DeadlockProber | None:
        """Return a detector of deadlocks by probes, if the scenario asks for it or no supervisor watches the fleet."""
        wait = self.blueprint.scenario.wait
        after_ns = wait.probes if isinstance(wait.probes, int) else None
        if wait.probes == "auto" and not self.parts.launched:
            after_ns = AFTER_NS
        if after_ns is None:
            return None
        num_nodes, still = self.blueprint.scenario.num_nodes, self._stands_still
        return DeadlockProber(self.node, num_nodes, after_ns=after_ns, found=self._found, still=still)

    def _found(self, finding: Finding) -> None:
        self.tell("probed", **finding.to_event(), suspected=finding.suspected, detection_s=finding.detection_s)
        if self.parts.begins is None:
            print(f"node {self.id}: {finding.text}", file=sys.stderr)
        skips = not self.parts.launched and self.blueprint.scenario.wait.on_stall == "skip"
        if skips and not finding.suspected:
            self.node.waits.skip(frozenset(source for _, source in finding.witness))

    def tell(self, kind: str, **details: Scalar) -> None:
        """Record an event of this `kind` at this node, with its `details`."""
        self.parts.journal.event(self.clock.now_ns(), self.id, self.round, kind, **details)
