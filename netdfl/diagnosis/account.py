"""The account of a node: a report about itself for the diagnosis of stalls (nodes that wait too long, or in vain).

It has the node's state, its wait, and the counts of the messages that it sent on each edge. An account is plain data
that JSON can hold. So a supervisor gets from nodes in other processes what a simulation reads in its own process, and
the diagnosis treats both alike.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, TypeAdapter

from netdfl.core.fates import Fate
from netdfl.core.types import Json, Kind, LogicalId, MessageId, NodeId, PeerMessage, StepId
from netdfl.diagnosis.outgoing import OutgoingMessages
from netdfl.diagnosis.snapshot import State, WaitKind
from netdfl.node.ledger import EdgeCount, NodeLedger, RoundRun, StepRun
from netdfl.node.runtime import Node

FateText: TypeAlias = Annotated[Fate, PlainValidator(lambda fate: Fate.read(str(fate))), PlainSerializer(str)]
"""The type of how a message ended (delivered, lost, ...) in a node's report: a `Fate` in memory, and text in JSON."""


def _message_id(data: Any) -> Any:
    """Convert a message id in a node's report to the current format before validation; netdfl 0.2.0 wrote another."""
    match data:
        case [kind, incarnation, int(round), step, attempt]:
            return kind, incarnation, (round, step), 0, attempt
    return data


def _peer_message(data: Any) -> Any:
    """Convert a message in a node's report to the current format before validation; netdfl 0.2.0 wrote another."""
    match data:
        case [dst, round, step]:
            return dst, (Kind.DATA, (round, step))
    return data


MessageIdText: TypeAlias = Annotated[MessageId, BeforeValidator(_message_id)]
SettledText: TypeAlias = tuple[MessageIdText, int, int | None, FateText]
"""A message that has ended (delivered, lost, ...), as a JSON list: id, time sent, time of arrival, and how it ended."""
PeerMessageText: TypeAlias = Annotated[PeerMessage, BeforeValidator(_peer_message)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitAccount:
    """The wait of a node, as reported by the node.

    Attributes:
        what: the kind of the wait.
        round: the round of the awaited messages.
        step: the step of that round.
        sources: the awaited nodes; None if the node does not know the senders.
        need: how many messages suffice.
        have: the nodes whose messages have come.
        left_out: the sources that the node does not wait for any more.
        since_ns: when the wait began.
        deadline_ns: when the wait ends at the latest; None: it has no deadline.
        undecided: sources that the node's failure detector may still call gone.
        essential: whether the node waits even for sources that are called gone.
        cumulative: whether a later message of a source also ends the wait for it.
    """

    what: WaitKind
    round: int
    step: int
    sources: tuple[NodeId, ...] | None
    need: int
    have: tuple[NodeId, ...] = ()
    left_out: tuple[NodeId, ...] = ()
    since_ns: int
    deadline_ns: int | None = None
    undecided: tuple[NodeId, ...] = ()
    essential: bool = False
    cumulative: bool = False


class WaitInBrief(NamedTuple):
    """A node's present wait in brief: its round, the awaited nodes (empty if unknown), and when it began, in ns."""

    round: int
    awaited: tuple[NodeId, ...]
    since_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeAccount:
    """The counts and latest messages of one edge, as reported by its sender.

    Attributes:
        sent: number of messages handed to the transport.
        delivered: number of messages that arrived.
        dropped: the messages that did not arrive, counted by how they ended.
        in_flight: number of messages that have not arrived yet and are not known to be lost.
        flying: the messages in flight, with the time when each was sent.
        last: the latest messages whose end (delivered, lost, ...) is known.
        lost: the latest lost messages.
        slots: the steps for which messages were ever sent, as ranges of steps, by message kind and number of the
            sender's restarts.
    """

    sent: int
    delivered: int
    dropped: Mapping[FateText, int]
    in_flight: int
    flying: tuple[tuple[MessageIdText, int], ...] = ()
    last: tuple[SettledText, ...] = ()
    lost: tuple[SettledText, ...] = ()
    slots: tuple[tuple[str, int, tuple[StepRun, ...]], ...] = ()

    def was_sent(self, id: LogicalId, epoch: int) -> bool:
        """Return whether the sender sent the message `id` over this edge in its life number `epoch`.

        A life lasts from a start of a node to its end; 0 is the first.
        """
        return any(
            first <= id.at <= last
            for each, life, runs in self.slots
            if (each, life) == (id.kind, epoch)
            for first, last in runs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A node's report for the diagnosis of stalls: its state, its wait, and the messages that it sent.

    Attributes:
        node: the node.
        epoch: the number of restarts of the node so far.
        at_ns: when it answered.
        state: its state.
        round: its round.
        since_ns: when its state began.
        step: its step of the round.
        steps: number of steps of the round.
        mailbox_full: whether its mailbox is full.
        early: number of unread messages that it does not await yet.
        serves: whether it answers peers' requests now, whatever it waits for.
        asked: the requests that it has not answered, as (sender, round, step).
        again: the messages that it will send again by itself, even after a restart.
        gone: the nodes that its failure detector calls gone, to which it sends nothing.
        left_out: the rounds in which it sent a node nothing because that node was called gone.
        next: the first step for which it may still send a message.
        born_ns: when its process last started.
        resumes_ns: when the scenario resumes it next, as far as its rounds show; None: never.
        wait: its wait, or None.
        edges: its edges, by receiver.
        stack: the stacks of its tasks, if asked for.
    """

    node: NodeId
    epoch: int
    at_ns: int
    state: State
    round: int
    since_ns: int
    step: int = 0
    steps: int = 1
    mailbox_full: bool = False
    early: int = 0
    serves: bool = False
    asked: tuple[tuple[NodeId, int, int], ...] = ()
    again: tuple[PeerMessageText, ...] = ()
    gone: tuple[NodeId, ...] = ()
    left_out: Mapping[NodeId, tuple[RoundRun, ...]] = field(default_factory=dict)
    next: StepId | None = None
    born_ns: int = 0
    resumes_ns: int | None = None
    wait: WaitAccount | None = None
    edges: Mapping[NodeId, EdgeAccount] = field(default_factory=dict)
    stack: str = ""

    def is_past(self, slot: StepId) -> bool:
        """Return whether the node has passed the step `slot`, so that it sends no message of it unless asked."""
        if self.state is State.FINISHED:
            return True
        return self.round > slot[0] if self.next is None else self.next > slot

    def took_for_gone(self, node: NodeId, round: int) -> bool:
        """Return whether this node sent `node` nothing in `round` because it considered `node` gone."""
        return any(first <= round <= last for first, last in self.left_out.get(node, ()))

    def to_json(self) -> Json:
        """Return the node's report as plain data that JSON can hold."""
        found: Json = _ACCOUNT.dump_python(self)
        return found

    @staticmethod
    def from_json(data: Json) -> Account:
        """Return the node's report from data that `to_json` made, whether they went through JSON or not.

        Raises ValueError.
        """
        return _ACCOUNT.validate_python(data)


_ACCOUNT: TypeAdapter[Account] = TypeAdapter(Account)

Flying: TypeAlias = Mapping[NodeId, Sequence[tuple[MessageId, int]]]


def give_account(
    node: Node,
    outgoing: OutgoingMessages,
    *,
    finished: bool = False,
    ended: bool = False,
    paused: bool = False,
    resumes_ns: int | None = None,
    flying: Flying | None = None,
    stack: str = "",
) -> Account:
    """Return the report (account) of `node` for the diagnosis of stalls; the node sends through `outgoing`.

    Args:
        node: the node.
        outgoing: the transport that shows which of its sends wait for room at their receivers.
        finished: whether the node has finished.
        ended: whether the node's process has ended; it may restart.
        paused: whether the node is paused.
        resumes_ns: when the scenario resumes it next.
        flying: its messages in flight, by receiver, if the simulation knows them better than the node.
        stack: the stacks of its tasks.
    """
    now = node.clock.now_ns()
    wait = None if finished or paused else _waiting(node) or _sending(node.ledger, outgoing)
    fetching_ns = node.models.since_ns
    state = State.FINISHED if finished else State.PAUSED if paused else _state_of(wait, fetching_ns)
    return Account(
        node=node.id,
        epoch=node.epoch,
        born_ns=node.born_ns,
        at_ns=now,
        state=state,
        round=max(node.round, 0),
        resumes_ns=resumes_ns,
        since_ns=wait.since_ns if wait is not None else _busy_since_ns(node),
        serves=node.requests.serving,
        asked=node.requests.kept,
        again=() if node.delivery is None else node.delivery.left if ended else node.delivery.due_again,
        gone=tuple(sorted(node.waits.gone)),
        left_out=dict(node.ledger.left_out),
        next=node.next_step,
        step=node.waits.step,
        steps=node.num_steps,
        early=node.mailbox.num_kept - (0 if wait is None else len(wait.have)),
        mailbox_full=node.mailbox.is_full,
        wait=wait,
        edges={
            dst: _count(edge, edge.flying.items() if flying is None else flying.get(dst, ()))
            for dst, edge in node.ledger.edges.items()
        },
        stack=stack,
    )


def wait_in_brief(node: Node) -> WaitInBrief | None:
    """Return the round, the awaited nodes and the start of the current wait of `node`; None if it does not wait."""
    wait = node.waits.current
    if wait is None:
        return None
    missing = (wait.sources or frozenset()) - wait.have - node.waits.gone
    return WaitInBrief(wait.round, tuple(sorted(missing)), wait.since_ns)


def waits_in_vain(account: Account, server: NodeId) -> bool:
    """Return whether a client waits only for its `server` and has no unread message: it has nothing left to do."""
    wait = account.wait
    return wait is not None and wait.essential and wait.sources == (server,) and not wait.have and not account.early


def _busy_since_ns(node: Node) -> int:
    """Return the time since which a node has not waited: it has worked, or fetched a model from a neighbor."""
    return max(node.born_ns, node.waits.went_on_ns) if node.models.since_ns is None else node.models.since_ns


def _state_of(wait: WaitAccount | None, fetching_ns: int | None) -> State:
    if wait is None:
        return State.RUNNING if fetching_ns is None else State.FETCHING
    return State.SENDING if wait.what is WaitKind.ROOM else State.WAITING


def _waiting(node: Node) -> WaitAccount | None:
    wait, beats = node.waits.current, node.heartbeats
    if wait is None:
        return None
    missing = sorted((wait.sources or frozenset()) - wait.have)
    essential = node.waits.policy.essential
    return WaitAccount(
        what=WaitKind.REPLY if wait.kind is Kind.REPLY else WaitKind.MESSAGE,
        round=wait.round,
        step=wait.step,
        sources=None if wait.sources is None else tuple(sorted(wait.sources)),
        need=wait.need,
        have=tuple(sorted(wait.have)),
        left_out=tuple(sorted((frozenset() if essential else node.waits.gone) | wait.silent)),
        since_ns=wait.since_ns,
        deadline_ns=wait.deadline_ns,
        undecided=tuple(
            n for n in missing if not essential and beats is not None and beats.may_call_gone(n, wait.since_ns)
        ),
        essential=essential,
        cumulative=node.waits.policy.cumulative,
    )


def _sending(ledger: NodeLedger, outgoing: OutgoingMessages) -> WaitAccount | None:
    """Return the wait of a send that a full mailbox holds up.

    It waits for room at the receiver to which this node has the most messages under way.
    """
    multicasts, since_ns = outgoing.held_up
    dsts = [dst for multicast in multicasts for dst in multicast.dsts]
    counts = [(dst, edges[dst]) for edges in (ledger.edges, ledger.aside) for dst in dsts if dst in edges]
    most: Counter[NodeId] = Counter()  # heartbeats take room, too
    for dst, count in counts:
        most[dst] += count.in_flight
    if not most:
        return None
    fullest = max(most, key=lambda dst: (most[dst], -dst))
    at = multicasts[0].id.at
    return WaitAccount(
        what=WaitKind.ROOM,
        round=at.round,
        step=at.step,
        sources=(fullest,),
        need=1,
        since_ns=since_ns,
    )


def _count(edge: EdgeCount, flying: Iterable[tuple[MessageId, int]]) -> EdgeAccount:
    return EdgeAccount(
        sent=edge.sent,
        delivered=edge.delivered,
        dropped=dict(edge.dropped),
        in_flight=edge.in_flight,
        flying=tuple(flying),
        last=tuple(edge.last),
        lost=tuple(edge.last_lost),
        slots=tuple((str(slots.life[0]), slots.life[1], slots.runs) for slots in reversed(edge.sent_steps)),
    )


def stack_of(coroutine: object) -> str:
    """Return a coroutine's stack as text, from the outermost await to the innermost."""
    lines = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            break
        lines += traceback.format_stack(frame, limit=1)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return "".join(lines)
