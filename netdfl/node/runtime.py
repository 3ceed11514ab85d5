"""The node: it gives the loop of an algorithm what it needs to train, send, wait and mix.

Relies on: a `Transport`, a `Clock` and a `Worker` alone, so a node can't tell a simulated world from a real one.

Why: The loops (`algorithms/families.py`) read like the papers' listings. Everything that a listing does not mention is
here, as the methods of `Node`, a `RoundContext`: messages, waits, deadlines, acknowledgements, restarts, records.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from math import isnan
from sys import maxsize
from typing import Protocol, TypeVar

from netdfl.algorithms.base import AS_THEY_ARE, Algorithm, LocalRound, NodeState
from netdfl.algorithms.exchange import WaitPolicy
from netdfl.algorithms.families import FAMILIES, first_state
from netdfl.algorithms.own import check_receivers, checked_steps, checked_weight
from netdfl.core.clock import NS_PER_S, Clock
from netdfl.core.errors import MessageError, NotFiniteError, TrainingError, UnsendableError
from netdfl.core.fates import OVERLOADED
from netdfl.core.rng import Key, Streams
from netdfl.core.types import (
    Inbox,
    Kind,
    Message,
    Multicast,
    NodeId,
    Outbox,
    Payload,
    StepId,
    View,
    answer_to,
    as_step,
    unicasts,
)
from netdfl.core.whose import misgiven, own_place
from netdfl.mixing.base import MeteredMixing
from netdfl.node.admission import MOST_STEPS
from netdfl.node.asking import StatusQueries
from netdfl.node.background import MOST_WAITING, BackgroundSends
from netdfl.node.delivery import AcknowledgingTransport, ResendPolicy
from netdfl.node.heartbeats import Heartbeats
from netdfl.node.ledger import NodeLedger
from netdfl.node.mailbox import Mailbox
from netdfl.node.not_finite import NonFinitePolicy
from netdfl.node.own_draws import OwnDraws
from netdfl.node.requests import Requests
from netdfl.node.shares import unacknowledged, weight_in
from netdfl.node.state_transfer import JoinPlan, StateTransfer
from netdfl.node.waits import OpenWait, Waits
from netdfl.node.worker import Worker
from netdfl.record.base import Recorder, WaitEnd, WaitRecord
from netdfl.record.shares import GIVEN_UP, TAKEN_AGAIN
from netdfl.training.base import Task, Update
from netdfl.transport.base import Sink, Transport

T = TypeVar("T")
NOTHING = Payload()
_LIGHT = 0.1


class Hooks(Protocol):
    """The functions that a world runs at the beginning and end of each round: scripted faults, snapshots, progress."""

    async def begin_round(self, round: int) -> None:
        """Act before the node begins `round`: a scripted crash or pause happens here."""
        ...

    async def end_round(self, state: NodeState, view: View, weight: float) -> None:
        """Act after the node finished a round with `state` and push-sum `weight`: save snapshots and checkpoints."""
        ...


@dataclass(kw_only=True)
class Node:
    """One node: it connects its training task, its transport and the loop of its algorithm.

    Attributes:
        id: the node's number.
        algorithm: the algorithm, with its mixing, solver and wait policy.
        task: the training task.
        view_of: returns the node's view of a round, given the nodes that it calls gone.
        num_rounds: number of rounds of the run.
        transport: carries the node's messages. Where messages are acknowledged, it is wrapped by `delivery`.
        clock: the fleet's time.
        worker: runs the maths.
        recorder: takes events, waits and metrics.
        ledger: counts the node's messages.
        mailbox: keeps arriving messages.
        hooks: called at the beginning and end of rounds.
        epoch: how often the node has restarted, which its messages carry.
        kept: the state from before a restart, with which the node goes on; None: it has none.
        resending: when unacknowledged messages are sent again; None: messages are not acknowledged.
        joining: how to get a model from a neighbor; None: the node has one.
        catch_up: the round in which to go on after a crash.
        without: for some senders, the last round that they made without sending to this node, as one of the two was
            absent. Up to it, no message of such a sender is awaited.
        can_ask: returns whether all of some peers can be sent status queries.
        streams: random streams for a user's own parts.
        sink: what the transport delivers into, before the mailbox; None: the mailbox itself.
        saves: whether the node's state is saved, for which acknowledgements wait.
        still: returns whether the node is paused; meanwhile it asks nobody and sends nothing again.
    """

    id: NodeId
    algorithm: Algorithm
    task: Task
    view_of: Callable[[int, frozenset[NodeId]], View]
    num_rounds: int
    transport: Transport
    clock: Clock
    worker: Worker
    recorder: Recorder
    ledger: NodeLedger
    mailbox: Mailbox
    hooks: Hooks
    epoch: int = 0
    kept: NodeState | None = None
    resending: ResendPolicy | None = None
    joining: JoinPlan | None = None
    catch_up: int = 0
    without: Mapping[NodeId, int] = field(default_factory=dict)
    can_ask: Callable[[Collection[NodeId]], bool] = lambda peers: False
    streams: Streams | None = None
    sink: Sink | None = None
    saves: bool = False
    still: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        """Connect the parts of the node: mailbox, waits, requests, and the transport that delivers to them."""
        asking = partial(
            StatusQueries, self.id, self.clock, self.post, self.epoch, is_step_done=self._is_step_done, still=self.still
        )
        self._draws = OwnDraws.of(self.id, self.algorithm, self.streams)
        self.waits = Waits(self.id, self.mailbox, self.clock, asking, self.can_ask, self._draws)
        self._background = BackgroundSends(lambda multicasts: self.transport.send(multicasts), self._left_out)
        self.requests = Requests(self.ledger, self._background.is_full)
        self.non_finite = NonFinitePolicy(self.algorithm.wait.on_not_finite, self.ledger)
        self.mailbox.on(Kind.REQUEST, self.requests.deliver)
        self.models = StateTransfer(self)
        self._is_short = self.worker.is_short(self.task.dim)
        self._spared: tuple[int, frozenset[NodeId]] | None = None
        mixing = self.algorithm.mixing
        self._counting: MeteredMixing | None = mixing if isinstance(mixing, MeteredMixing) else None
        self.latest: NodeState | None = None
        self._held = 0.0
        self.round, self.born_ns = -1, 0
        self._steps: dict[int, int] = {}  # the exchanges of the round that was asked about last
        self._awaited: tuple[tuple[NodeId, ...] | None, frozenset[NodeId] | None] = (None, None)
        self.next_step = StepId(0, 0)
        """The first step for which this node may still send a message."""
        self._trained = False
        self._began_ns = self._trained_ns = self._waited_ns = self._bytes_before = 0
        self.heartbeats: Heartbeats | None = None
        self.delivery: AcknowledgingTransport | None = None
        if self.resending is not None:
            self.delivery = AcknowledgingTransport(
                self.id,
                self.epoch,
                self.transport,
                self.clock,
                self.resending,
                keeps=self.saves,
                still=self.still,
                gave_up=self._gave_up,
                came_again=self._came_again,
                left_out=self._left_out,
            )
            self.transport = self.delivery
        self.transport.attach(self.sink or self.mailbox)

    async def run(self) -> None:
        """Run the algorithm to its last round."""
        self.born_ns = self.clock.now_ns()
        if self.joining is not None:
            self.kept = await self.models.join(self.joining)
        await FAMILIES[self.algorithm.family](self, self.algorithm)
        self.waits.close()
        self.next_step = StepId(self.num_rounds, 0)
        if self.mailbox.keep_late:
            self.mailbox.finish() if self.delivery is None else self.mailbox.shut()

    def begin(self, alg: Algorithm) -> NodeState:
        """Return the node's initial state: the one restored after a restart, or a new one."""
        with self.drawing("begin", 0):
            state = self.kept or first_state(self.task.initial(), alg, self.view_of(0, frozenset()))
        self.latest, self._held = state, self.weight_of(state)
        return state

    def drawing(self, what: str, round: int, *key: Key) -> AbstractContextManager[object]:
        """Return a context in which random draws of a user's part depend on node, `round`, `what` and `key` alone."""
        return AS_THEY_ARE if self._draws is None else self._draws.within(what, round, *key)

    def exchanges(self, view: View) -> int:
        """Return the number of exchanges of messages in a round, which the mixing decides."""
        num_steps, draws = self.algorithm.mixing.num_steps, self._draws
        num_steps = num_steps if draws is None else draws.drawing(num_steps, view.round)
        most = maxsize if draws is None else MOST_STEPS  # more are not admitted where parts are a user's own
        steps = checked_steps(self.algorithm.mixing, num_steps(view.round, view), most)
        self._steps = {view.round: steps}
        return steps

    @property
    def num_steps(self) -> int:
        """Number of exchanges of the current round, cached because it is read often and computing a view is slow."""
        round = max(self.round, 0)
        if self.algorithm.family != "gossip" or round >= self.num_rounds:
            return 1
        return self._steps.get(round) or self.exchanges(self.view_of(round, frozenset()))

    def weight_of(self, state: NodeState) -> float:
        """Return the push-sum weight of `state`; 1 in methods without weights."""
        if self.algorithm.family == "server":
            return 1.0
        mixing = self.algorithm.mixing
        weight = mixing.weight(state.mixing)
        return float(weight) if self._draws is None else checked_weight(mixing, weight)

    @property
    def held_weight(self) -> float | None:
        """The push-sum weight of this node, including its unread messages; None in methods without weights."""
        if not self.mailbox.keep_late:
            return None
        return max(0.0, self._held) + weight_in(message.payload for message in self.mailbox.unread())

    async def rounds(self, first: int) -> AsyncIterator[View]:
        """Yield the view of each remaining round.

        A node that must catch up first repeats the round in which it crashed: some messages of that round may have left
        before, with mass that is not the node's any more. It waits for nobody in that round, since all others are done
        with it. Then it goes on in the round of the others, or ends if they have ended.
        """
        self.catch_up = self.catch_up if self.catch_up > first + 1 or self.catch_up == self.num_rounds else 0
        for round in (round for round in range(first, self.num_rounds) if round == first or round >= self.catch_up):
            self.round, self.waits.step, self.next_step = round, 0, as_step((round, 0))
            await self.hooks.begin_round(round)
            self._began_ns, self._trained_ns, self._waited_ns = self.clock.now_ns(), 0, 0
            self._bytes_before, self._trained = self.ledger.bytes_sent, False
            if self.waits.gone:
                self.ledger.leaves_out(self.waits.gone, round)
            saved, gone = self._spared or (-1, frozenset())
            yield self.view_of(round, gone if saved == round else frozenset(self.waits.gone))

    def leave_out(self, left_out: tuple[int, frozenset[NodeId]] | None) -> None:
        """Make a round without the nodes that were gone when the state before it was saved, even if they return.

        `left_out`: the round and these nodes; None: they are unknown.
        """
        self._spared = left_out

    @property
    def _is_behind(self) -> bool:
        """Whether the node repeats the round in which it crashed, before it continues in the others' round."""
        return self.round < self.catch_up

    async def train(self, state: NodeState, alg: Algorithm, view: View) -> tuple[NodeState, Update]:
        """Train for one local round, in the worker. Raises TrainingError, with a note that names node and round."""
        began = self.clock.now_ns()
        data = self.task.data(view.round)
        try:
            state, update = await self.worker.run("train", LocalRound(state, alg, data, view))
        except (NotFiniteError, RuntimeError) as error:
            if not isinstance(error, NotFiniteError) and "out of memory" not in str(error) and own_place(error):
                raise  # a mistake in a user's own part: every node has it
            raise self._failure(error, state, view) from error
        took_ns = self.clock.now_ns() - began
        self.waits.auto.trained(took_ns)
        self._trained_ns += took_ns
        self._trained = True
        return state, Update(update.before, update.x, update.extras, self.task.last_loss)

    def _failure(self, error: NotFiniteError | RuntimeError, state: NodeState, view: View) -> TrainingError:
        if isinstance(error, NotFiniteError):
            now, what = self.clock.now_ns(), error.what + self.non_finite.blame(state.x) + self._lightness(state)
            self.recorder.event(now, self.id, view.round, "not_finite", step=error.step, reason=what)
            failure: TrainingError = NotFiniteError(what, error.step)
        else:
            failure = TrainingError(f"training failed: {error}")
        failure.add_note(f"node {self.id}, round {view.round}")
        return failure

    def _lightness(self, state: NodeState) -> str:
        """Return a clause for an error if a small push-sum weight made the training steps long; else empty."""
        weight = self.weight_of(state)
        return f", at a push-sum weight of {weight:.3g}, by which steps are divided" if 0 < weight < _LIGHT else ""

    async def refine(self, state: NodeState, alg: Algorithm, view: View) -> NodeState:
        """Refine the model of a server, always in the worker. Raises TrainingError."""
        if alg.refine is None:
            return state
        refine = state.refine if self._draws is None else self._draws.drawing(state.refine, view.round)
        return await self.worker.run("refine", refine, alg, self.task.objective, view)

    async def do(self, function: Callable[..., T], *args: object) -> T:
        """Run `function`: inline if the model is short, else in the worker, so that it does not block the event loop.

        A message of the inbox that proves malformed is refused, and the others are mixed.
        """
        call = function if self._draws is None else self._draws.drawing(function, self.round)
        while True:
            try:
                if self._is_short:
                    return call(*args)
                return await self.worker.run("mix", call, *args)
            except MessageError as error:
                args = self._refuse(error, args)

    def _refuse(self, error: MessageError, args: tuple[object, ...]) -> tuple[object, ...]:
        inbox = next((arg for arg in args if isinstance(arg, Inbox)), Inbox())
        culprit = next((message for message in inbox if message == error.message), None)
        if culprit is None:
            raise error
        self.ledger.refused((culprit.src, self.id), error.reason, str(error), culprit.round)
        return tuple(arg.without(culprit) if arg is inbox else arg for arg in args)

    def _gave_up(self, message: Message) -> None:
        weight, now = weight_in((message.payload,)), self.clock.now_ns()
        self.recorder.event(now, self.id, message.round, GIVEN_UP, dst=message.dst, step=message.step, weight=weight)

    def _came_again(self, message: Message) -> None:
        """Record a message whose push-sum weight may count twice, as the node may have taken it before it crashed."""
        if weight := weight_in((message.payload,)):
            now, step = self.clock.now_ns(), message.step
            self.recorder.event(now, self.id, message.round, TAKEN_AGAIN, src=message.src, step=step, weight=weight)

    async def send(self, view: View, step: int, outbox: Outbox) -> None:
        """Send the payloads in `outbox`, by receiver, as the messages of exchange `step` in the round of `view`.

        In an algorithm with notices, a peer without a payload gets a notice instead.
        """
        if self._draws is not None:
            check_receivers(self.algorithm.mixing, outbox, view, self.view_of)
        at, outboxes = as_step((view.round, step)), {Kind.DATA: outbox}
        if self.algorithm.wait.announce and view.in_neighbors is None:
            without = set(view.may_send_to) - outbox.keys() - self.waits.gone
            self.ledger.leaves_out(self.waits.gone - outbox.keys(), view.round)  # some since the round began
            outboxes[Kind.NOTICE] = dict.fromkeys(sorted(without), NOTHING)
        self._held -= weight_in(outbox.values()) if self.mailbox.keep_late else 0.0
        multicasts = [Multicast.first(self.id, kind, self.epoch, at, each) for kind, each in outboxes.items() if each]
        try:
            await self.transport.send(multicasts)
        except UnsendableError as error:
            gave = "a payload that can't be sent"
            raise misgiven(self.algorithm.mixing, "outgoing", gave, str(error)) from error
        self.next_step = as_step((view.round, step + 1))

    def _is_step_done(self, peer: NodeId, step_id: StepId) -> bool:
        """Whether this node will send `peer` no message for `step_id` any more."""
        return step_id < self.next_step and not (self.delivery is not None and self.delivery.sends_again(peer, step_id))

    async def collect(self, view: View, wait: WaitPolicy, lag: int | None) -> Inbox:
        """Wait for the messages of `lag` rounds ago (None: wait for none); return all that came up to this round."""
        if lag is None:
            inbox, last = await self.gather(view, 0, replace(wait, need="none")), StepId(self.num_rounds, 0)
        else:
            awaited, last = view.round - lag, StepId(view.round, 0)
            gone = frozenset(self.waits.gone)
            inbox = await self.gather(self.view_of(awaited, gone), 0, wait) if awaited >= 0 else Inbox()
        early = await self._screened(Inbox(self.mailbox.take_early(last)))
        return Inbox((*inbox, *early), inbox.missing, inbox.acknowledgements)

    def serve(self, answer: Callable[[Message], None] | None) -> None:
        """Pass requests of peers to the function `answer`, earlier ones first; None: keep requests for later."""
        self.requests.serve(self.non_finite.requests(answer))
        self.mailbox.make_room()

    def reply(self, request: Message, payload: Payload) -> None:
        """Send a reply in a background task.

        It has its request's attempt number, so the loss of each attempt is independent.
        """
        self.requests.answered[request.src] = (request.round, request.step)
        self.post(answer_to(request, Kind.REPLY, self.epoch, payload))

    def post(self, message: Message) -> None:
        """Send a message in a background task; leave it out if too many wait for its receiver."""
        self._background.answer(message)

    def _left_out(self, message: Message) -> None:
        what = (
            f"{MOST_WAITING} messages wait for node {message.dst}, which takes none: no more are sent to it meanwhile"
        )
        self.ledger.refused((message.dst, self.id), OVERLOADED, what)

    def owed(self, peer: NodeId) -> bool:
        """Return whether this node's request to `peer` is unanswered and will be sent again."""
        return self.delivery is not None and self.delivery.asks(peer)

    def is_last(self, view: View) -> bool:
        """Return whether the round of `view` is the run's last one."""
        return view.round == self.num_rounds - 1

    async def ask(self, view: View, peer: NodeId, payload: Payload, wait: WaitPolicy) -> Inbox:
        """Send `peer` a request with `payload`; wait for the reply as `wait` says, and return it in an inbox."""
        if self._draws is not None:
            check_receivers(self.algorithm.mixing, (peer,), view, self.view_of, asks=True)
        request = Message(self.id, peer, Kind.REQUEST, self.epoch, view.round, 0, 0, payload)
        await self.transport.send(unicasts([request]))
        return await self.gather(view, 0, wait, (peer,), Kind.REPLY)

    async def gather(
        self,
        view: View,
        step: int,
        wait: WaitPolicy,
        sources: tuple[NodeId, ...] | None = None,
        kind: Kind = Kind.DATA,
    ) -> Inbox:
        """Wait for the messages of exchange `step` as `wait` says, and return them; record the missing senders."""
        wait = replace(wait, need="none") if self._is_behind else wait
        awaited = sources if sources is not None else view.in_neighbors
        if awaited is None and wait.announce:
            awaited = view.may_hear
        if self.without and awaited is not None and kind is Kind.DATA:
            awaited = tuple(each for each in awaited if each not in self.without or self.without[each] < view.round)
        if awaited is not self._awaited[0]:  # on a graph that stays they are the same in every round
            self._awaited = awaited, None if awaited is None else frozenset(awaited)
        inbox, waited = await self.waits.messages(view.round, step, self._awaited[1], wait, kind)
        self._waited_ns += self.waits.went_on_ns - waited.since_ns
        self._record(waited, inbox.missing)
        if inbox.missing:
            self.recorder.event(
                self.clock.now_ns(), self.id, view.round, "missing", step=step, awaited=list(inbox.missing)
            )
        inbox = await self._screened(inbox)
        if self.delivery is not None:
            return Inbox(inbox.messages, inbox.missing, self.delivery.take_acknowledged())
        return inbox

    def _record(self, wait: OpenWait, missing: Sequence[NodeId]) -> None:
        """Record a finished wait and its `missing` senders, unless all its messages were there when it began."""
        now, since, limit = self.waits.went_on_ns, wait.since_ns, wait.deadline_ns
        at_once = wait.ended is WaitEnd.CAME and wait.last_src is None
        if now > since and wait.ended is not None and not at_once:
            deadline = None if limit is None or wait.asks else limit - since  # who asks goes by the answers
            head = (self.id, wait.round, wait.step, wait.kind, since, now)
            self.recorder.wait(WaitRecord(*head, deadline, wait.ended, wait.last_src, tuple(missing)))

    async def _screened(self, inbox: Inbox) -> Inbox:
        """Apply the scenario's policy on NaN and infinity to an inbox; return the messages to mix."""
        if self.non_finite.how == "refuse":
            return await self.do(self.non_finite.screen, inbox)
        if self.non_finite.how == "count":
            self.non_finite.count(await self.do(self.non_finite.not_finite, inbox))
        return inbox

    async def end_round(self, state: NodeState, view: View) -> None:
        """Record the metrics of the round (times, bytes, loss), then call the world's hook for the end of a round."""
        now = self.clock.now_ns()
        if self._is_behind:
            state, missed = state._replace(round=self.catch_up), self.catch_up - view.round - 1
            if missed:
                self.recorder.event(now, self.id, view.round, "catch_up", missed=missed)
        weight = self.weight_of(state)
        self.latest, self._held = state, weight
        figures = {
            "round_s": (now - self._began_ns) / NS_PER_S,
            "train_s": self._trained_ns / NS_PER_S,
            "wait_s": self._waited_ns / NS_PER_S,
            "bytes_sent": float(self.ledger.bytes_sent - self._bytes_before),
        }
        if self._trained and not isnan(self.task.last_loss):
            figures["train_loss"] = self.task.last_loss
        if self.mailbox.keep_late:
            figures["weight"] = weight
        if self.delivery is not None:
            figures |= unacknowledged(self.delivery.unacknowledged())
        if self._counting is not None:
            figures |= self._counting.figures(state.mixing)
        self.recorder.metrics(now, self.id, view.round, figures)
        await self.hooks.end_round(state, view, weight)
