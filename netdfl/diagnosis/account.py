"""What a node says of itself when it is probed: what it does, what it waits for, its messages by edge.

Plain data that JSON holds, so that a supervisor gets from another process what the simulated world
reads in its own.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, TypeAdapter

from netdfl.core.fates import Fate
from netdfl.core.types import Json, Kind, LogicalId, MessageId, NodeId, PeerMessage, StepId
from netdfl.diagnosis.outgoing import Outgoing
from netdfl.diagnosis.snapshot import State, What
from netdfl.node.ledger import EdgeCount, NodeLedger, RoundRun, StepRun
from netdfl.node.runtime import Node

FateText: TypeAlias = Annotated[Fate, PlainValidator(lambda fate: Fate.read(str(fate))), PlainSerializer(str)]
"""A fate, which is text on the wire."""


def _message_id(data: Any) -> Any:
    """Also read ids as netdfl 0.2.0 kept them, with round and step beside the other fields and without a part."""
    match data:
        case [kind, incarnation, int(round), step, attempt]:
            return kind, incarnation, (round, step), 0, attempt
    return data


def _peer_message(data: Any) -> Any:
    """Also read (destination, round, step), as netdfl 0.2.0 kept it."""
    match data:
        case [dst, round, step]:
            return dst, (Kind.DATA, (round, step))
    return data


MessageIdText: TypeAlias = Annotated[MessageId, BeforeValidator(_message_id)]
SettledText: TypeAlias = tuple[MessageIdText, int, int | None, FateText]
"""A `Settled` of which ids and fates are text on the wire."""
PeerMessageText: TypeAlias = Annotated[PeerMessage, BeforeValidator(_peer_message)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitAccount:
    """A node's wait in its own words. `sources` is None where the node does not know who will send.

    `undecided` are sources that its failure detector may yet call gone. `essential`: it waits for those that are
    gone too. `cumulative`: a later message of a source ends the wait for it as well.
    """

    what: What
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
    """A wait in few words: in which round, for whom (nobody, where that is not known), since when."""

    round: int
    awaited: tuple[NodeId, ...]
    since_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeAccount:
    """Counts and messages of one edge, by its sender. `slots`: what of the rounds was ever sent, by kind and epoch."""

    sent: int
    delivered: int
    dropped: Mapping[FateText, int]
    in_flight: int
    flying: tuple[tuple[MessageIdText, int], ...] = ()
    last: tuple[SettledText, ...] = ()
    lost: tuple[SettledText, ...] = ()
    slots: tuple[tuple[str, int, tuple[StepRun, ...]], ...] = ()

    def was_sent(self, id: LogicalId, epoch: int) -> bool:
        """Whether the message was sent in the sender's life `epoch`."""
        return any(
            first <= id.at <= last
            for each, life, runs in self.slots
            if (each, life) == (id.kind, epoch)
            for first, last in runs
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A node's answer to a probe. Its life number `epoch` began at `born_ns`.

    `serves`: it answers peers' requests now, whatever it waits for; `asked`, as (sender, round, step), it has not yet.
    `again` are the messages that it, or a later life of it, will send again by itself.
    To those in `gone`, as its failure detector says, it sends nothing; each in `left_out` it left out of the rounds
    from one to another. `next` is the first round and step for which it may still send something. It is in step
    `step` of the `steps` of its round, and keeps `early` messages that it does not wait for yet. `resumes_ns` is when
    the scenario resumes it next, as far as it has come in its rounds; None: never.
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
        """Whether it is past a round and step: it sends nothing for that any more, of itself."""
        if self.state is State.FINISHED:
            return True
        return self.round > slot[0] if self.next is None else self.next > slot

    def took_for_gone(self, node: NodeId, round: int) -> bool:
        """Whether it sent `node` nothing in `round` as it took it for gone."""
        return any(first <= round <= last for first, last in self.left_out.get(node, ()))

    def to_json(self) -> Json:
        """Plain data."""
        found: Json = _ACCOUNT.dump_python(self)
        return found

    @staticmethod
    def from_json(data: Json) -> Account:
        """What `to_json` gave, through JSON or not. Raises ValueError."""
        return _ACCOUNT.validate_python(data)


_ACCOUNT: TypeAdapter[Account] = TypeAdapter(Account)

Flying: TypeAlias = Mapping[NodeId, Sequence[tuple[MessageId, int]]]


def give_account(
    node: Node,
    outgoing: Outgoing,
    *,
    finished: bool = False,
    ended: bool = False,
    paused: bool = False,
    resumes_ns: int | None = None,
    flying: Flying | None = None,
    stack: str = "",
) -> Account:
    """What `node`, which sends through `outgoing`, does now.

    `ended`: this life of it is over. `flying` is what it has in flight, by destination, where the world knows that
    better than its ledger.
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
        mailbox_full=node.mailbox.num_kept >= node.mailbox.bound,
        wait=wait,
        edges={
            dst: _count(edge, edge.flying.items() if flying is None else flying.get(dst, ()))
            for dst, edge in node.ledger.edges.items()
        },
        stack=stack,
    )


def wait_in_brief(node: Node) -> WaitInBrief | None:
    """What `node` waits for now; None: for no message."""
    wait = node.waits.current
    if wait is None:
        return None
    missing = (wait.sources or frozenset()) - wait.have - node.waits.gone
    return WaitInBrief(wait.round, tuple(sorted(missing)), wait.since_ns)


def waits_in_vain(account: Account, server: NodeId) -> bool:
    """Whether a client waits for its `server` alone, and has nothing of it that it did not read: it need not go on."""
    wait = account.wait
    return wait is not None and wait.essential and wait.sources == (server,) and not wait.have and not account.early


def _busy_since_ns(node: Node) -> int:
    """Since when a node that does not wait fetches a model, or else works."""
    return max(node.born_ns, node.waits.went_on_ns) if node.models.since_ns is None else node.models.since_ns


def _state_of(wait: WaitAccount | None, fetching_ns: int | None) -> State:
    if wait is None:
        return State.RUNNING if fetching_ns is None else State.FETCHING
    return State.SENDING if wait.what is What.ROOM else State.WAITING


def _waiting(node: Node) -> WaitAccount | None:
    wait, beats = node.waits.current, node.heartbeats
    if wait is None:
        return None
    missing = sorted((wait.sources or frozenset()) - wait.have)
    essential = node.waits.policy.essential
    return WaitAccount(
        what=What.REPLY if wait.kind is Kind.REPLY else What.MESSAGE,
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


def _sending(ledger: NodeLedger, outgoing: Outgoing) -> WaitAccount | None:
    """A send that lasts waits for room: at the destination where most is under way."""
    multicasts, since_ns = outgoing.held_up
    dsts = [dst for multicast in multicasts for dst in multicast.dsts]
    most = {dst: ledger.edges[dst].in_flight for dst in dsts if dst in ledger.edges}
    if not most:
        return None
    fullest = max(most, key=lambda dst: (most[dst], -dst))
    at = multicasts[0].id.at
    return WaitAccount(
        what=What.ROOM,
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
    """Where a coroutine stands, from the outermost await to the innermost."""
    lines = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            break
        lines += traceback.format_stack(frame, limit=1)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return "".join(lines)
