"""What travels between nodes, and what a node knows of a round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

NodeId: TypeAlias = int
Edge: TypeAlias = tuple[NodeId, NodeId]
Scalar: TypeAlias = "int | float | str | bool | Sequence[Scalar] | Mapping[str, Scalar] | None"

Json: TypeAlias = Mapping[str, Any]
OnMissing: TypeAlias = Literal["self", "renormalise", "last", "undo"]
"""Where the weight of a neighbor goes whose message did not come in time."""
"""A JSON object that is read by its keys: its writer knows its form."""

_EMPTY: Json = MappingProxyType({})


class Kind(StrEnum):
    """What a message is for. Only `DATA` advances a bursty link's chain of data messages."""

    DATA = "data"
    ACK = "ack"
    NOTICE = "notice"
    BOARD = "board"
    REQUEST = "request"
    REPLY = "reply"
    HEARTBEAT = "heartbeat"
    PROBE = "probe"
    FETCH = "fetch"
    MODEL = "model"
    QUERY = "query"
    STATUS = "status"


_DTYPES = {8: "float64 int64", 4: "float32 int32", 2: "float16 bfloat16 int16", 1: "uint8 int8 bool"}
ITEM_BYTES: Mapping[str, int] = {name: nbytes for nbytes, names in _DTYPES.items() for name in names.split()}
"""The dtypes that travel, by numpy's names (and torch's), and the bytes of one number."""


@dataclass(frozen=True, slots=True)
class Array:
    """A read-only, C-contiguous, little-endian buffer with its dtype and shape.

    `dtype` is one of `ITEM_BYTES`. `data` is a flat memoryview of bytes;
    nobody writes to what is behind it once the array exists.
    """

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    @property
    def nbytes(self) -> int:
        """Bytes of the raw buffer."""
        return self.data.nbytes


@dataclass(eq=False, slots=True)
class Payload:
    """The immutable contents of a message: named arrays and small metadata.

    One payload is shared by every neighbour that it goes to. `encoded` caches the wire's form, so
    that it is made once a round and not once a neighbour; `size` caches its exact length, `digest`
    that of its contents, `finite` whether all its numbers are, and `read` what receivers in this process
    made of its arrays, by names and what they took them for.
    """

    arrays: Mapping[str, Array] = field(default_factory=lambda: _EMPTY)
    meta: Mapping[str, Scalar] = field(default_factory=lambda: _EMPTY)
    encoded: tuple[bytes | memoryview, ...] | None = field(default=None, repr=False)
    size: int | None = field(default=None, repr=False)
    digest: str | None = field(default=None, repr=False)
    finite: bool | None = field(default=None, repr=False)
    read: dict[object, Any] | None = field(default=None, repr=False)

    def __deepcopy__(self, memo: object) -> Payload:
        """Nobody writes to it, so a copy is the same."""
        return self


class StepId(NamedTuple):
    """A step of a round, where a message belongs in the algorithm. Steps are in the order of time."""

    round: int
    step: int


as_step: Callable[[tuple[int, int]], StepId] = partial(tuple.__new__, StepId)
"""A step of its fields, without the call in Python that a named tuple makes."""


class LogicalId(NamedTuple):
    """A message of an edge, whichever life of its sender sends it and however often.

    A node waits for it, asks for it, sends it again and takes it once. `part` numbers several messages of one kind and
    step: 0 as long as a step has one.
    """

    kind: Kind
    at: StepId
    part: int = 0


class MessageId(NamedTuple):
    """One message among all that one edge carries: a logical message, sent by a life of the node, for a time.

    `incarnation` is the life of the sender, `attempt` counts resends.
    """

    kind: Kind
    incarnation: int
    at: StepId
    part: int
    attempt: int

    @property
    def logical(self) -> LogicalId:
        """The message that this is an attempt to send."""
        return LogicalId(self.kind, self.at, self.part)


as_message_id: Callable[[tuple[Kind, int, StepId, int, int]], MessageId] = partial(tuple.__new__, MessageId)
"""An id of its fields, without the call in Python that a named tuple makes."""


PeerMessage: TypeAlias = tuple[NodeId, LogicalId]
"""A message of two nodes, as one of them knows it: the other node, and which message it is."""


class Message(NamedTuple):
    """One message of one directed edge.

    `round` and `step` say where in the algorithm it belongs, `attempt` counts resends, `epoch`
    counts the restarts of the sender. A tuple, because a fleet makes very many.
    """

    src: NodeId
    dst: NodeId
    kind: Kind
    epoch: int
    round: int
    step: int
    attempt: int
    payload: Payload

    @property
    def at(self) -> StepId:
        """The step that it belongs to."""
        return as_step((self.round, self.step))

    @property
    def id(self) -> MessageId:
        """Tell it from all others of its edge."""
        return as_message_id((self.kind, self.epoch, as_step((self.round, self.step)), 0, self.attempt))

    @property
    def logical(self) -> LogicalId:
        """The message that this is an attempt to send."""
        return LogicalId(self.kind, self.at)


Outbox: TypeAlias = Mapping[NodeId, Payload]
"""The payload of each destination of one step: the same object where they agree."""


class Multicast(NamedTuple):
    """One message that a node hands over for several others at one instant; a single receiver is the small case.

    `dsts` are all different, and `payloads` are what each gets, in their order: the same object where they agree.
    """

    src: NodeId
    dsts: tuple[NodeId, ...]
    id: MessageId
    payloads: tuple[Payload, ...]

    @property
    def messages(self) -> list[Message]:
        """Each receiver's own message."""
        src, dsts, (kind, incarnation, (round, step), _, attempt), payloads = self
        new = tuple.__new__  # without the call in Python that a named tuple makes
        return [
            new(Message, (src, dst, kind, incarnation, round, step, attempt, payload))
            for dst, payload in zip(dsts, payloads, strict=True)
        ]

    def after(self, count: int) -> Multicast:
        """Leave out the first `count` receivers."""
        return self._replace(dsts=self.dsts[count:], payloads=self.payloads[count:])


as_multicast: Callable[[tuple[NodeId, tuple[NodeId, ...], MessageId, tuple[Payload, ...]]], Multicast] = partial(
    tuple.__new__, Multicast
)
"""A multicast of its fields, without the call in Python that a named tuple makes."""


def first_multicast(src: NodeId, kind: Kind, incarnation: int, at: StepId, outbox: Outbox) -> Multicast:
    """Make a message to each destination of `outbox`, as a life of `src` sends it for the first time."""
    return as_multicast((src, tuple(outbox), as_message_id((kind, incarnation, at, 0, 0)), tuple(outbox.values())))


def messages_of(multicasts: Iterable[Multicast]) -> list[Message]:
    """Take multicasts apart into each receiver's own message."""
    return [message for multicast in multicasts for message in multicast.messages]


def unicast(message: Message) -> Multicast:
    """Make of a message a multicast with one receiver."""
    return as_multicast((message.src, (message.dst,), message.id, (message.payload,)))


def unicasts(messages: Iterable[Message]) -> list[Multicast]:
    """Make of each message a multicast with one receiver."""
    return [unicast(message) for message in messages]


_src = itemgetter(0)
_in_order = itemgetter(*map(Message._fields.index, ("src", "round", "step", "epoch", "attempt")))
_acknowledged_in_order = attrgetter("message.dst", "message.round", "message.step", "message.epoch")


class Acknowledgement(NamedTuple):
    """What a receiver said of one of this node's own messages: that it took it, or that it never will."""

    message: Message
    taken: bool


class Inbox:
    """The messages that one wait collected, iterated by (src, round, step), never by arrival.

    `acknowledgements` are what has been said of this node's own messages since its last wait, where delivery is
    acknowledged.
    """

    __slots__ = ("acknowledgements", "messages", "missing")

    def __init__(
        self,
        messages: Sequence[Message] = (),
        missing: Sequence[NodeId] = (),
        acknowledgements: Sequence[Acknowledgement] = (),
    ) -> None:
        """Sort the messages; `missing` are the awaited nodes from which nothing came in time."""
        alone = len(set(map(_src, messages))) == len(messages)  # each the only one of its sender
        self.messages = tuple(sorted(messages, key=_src if alone else _in_order))
        self.missing = tuple(sorted(missing)) if missing else ()
        self.acknowledgements = tuple(sorted(acknowledgements, key=_acknowledged_in_order)) if acknowledgements else ()

    @property
    def returned(self) -> Iterator[Message]:
        """This node's own messages that their receivers refused: what is in them is this node's again."""
        return (each.message for each in self.acknowledgements if not each.taken)

    def without(self, message: Message) -> Inbox:
        """The same, with `message` counted as missing."""
        left = [m for m in self.messages if m is not message]
        return Inbox(left, (*self.missing, message.src), self.acknowledgements)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


class Role(StrEnum):
    """What a node does in the fleet."""

    CLIENT = "client"
    SERVER = "server"


class View(NamedTuple):
    """What one node knows of one round. A tuple, because every node gets one in each.

    The mixing matrix is in receiver-row convention, `X+ = M X`: `in_weights[j]` is M_ij, the weight
    that this node gives to what it receives from j; `out_weights[j]` is M_ji, the weight that j
    gives to what this node sends; `self_weight` is M_ii. `in_neighbors` is None where senders
    choose alone and nobody told this node who will send: then `may_hear` are the nodes that might,
    and `may_send_to` those that might expect something of this one. `active` is False in a round in
    which this node neither trains nor talks (a client that the server did not sample).
    """

    node: NodeId
    round: int
    num_nodes: int
    out_neighbors: tuple[NodeId, ...]
    in_neighbors: tuple[NodeId, ...] | None
    self_weight: float
    in_weights: Mapping[NodeId, float]
    out_weights: Mapping[NodeId, float]
    role: Role = Role.CLIENT
    server: NodeId | None = None
    active: bool = True
    may_hear: tuple[NodeId, ...] = ()
    may_send_to: tuple[NodeId, ...] = ()
