"""The messages between nodes, and a node's view of a round.

Relies on: only the standard library. A payload's buffers do not change once it exists; code that makes a payload copies
the vectors for that.

Why: Messages and ids are tuples, and are built without the call in Python that a named tuple makes, because a fleet
makes millions. There is one identity of a transmission (`MessageId`) with one projection (`LogicalId`): waits, queries,
resends and the detection of duplicates must agree on which messages are the same. A message to several receivers
always has the form of a multicast, so no layer needs to look for equal messages.
"""

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
"""A JSON object with keys that the code that reads it knows."""
OnMissing: TypeAlias = Literal["self", "renormalise", "last", "undo"]
"""The treatment of a neighbor's weight where its message did not come in time. The weight goes to the node's own
vector (`self`), to all vectors that came, or to the neighbor's last vector (`last`). With `undo`, an exchange of
two neighbors that failed in one direction is undone on both sides."""

_EMPTY: Json = MappingProxyType({})


class Kind(StrEnum):
    """The purpose of a message: data, acknowledgement, notice, heartbeat and others."""

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
"""The dtypes that messages may hold, by numpy's names (and torch's), with the bytes of one number."""


@dataclass(frozen=True, slots=True)
class Array:
    """A read-only, C-contiguous, little-endian buffer with its dtype and shape.

    `dtype` is one of `ITEM_BYTES`. `data` is a flat memoryview of bytes, whose buffer must not change once the array
    exists.
    """

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    @property
    def nbytes(self) -> int:
        """The number of bytes of the raw buffer."""
        return self.data.nbytes


FEW_VALUES, PER_VALUE = 16, 128
"""A payload whose metadata has more than FEW_VALUES values counts as PER_VALUE bytes larger for each further value: an
empty map takes one byte on the wire, and at most this many in memory."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class Payload:
    """The immutable contents of a message: named arrays and small metadata.

    All its receivers share one payload.

    Attributes:
        arrays: the arrays, by name.
        meta: the metadata, by key.
        encoded: a cache of the encoded form, which is made once a round and not for each neighbor.
        size: a cache of the bytes of a frame with this payload.
        digest: a cache of the digest of the contents.
        checksum: a cache of the checksum of the encoded form, which a receiver compares in any case.
        length: a cache of the Euclidean length of the longest vector; infinity if a number can't be computed with.
    """

    arrays: Mapping[str, Array] = field(default_factory=lambda: _EMPTY)
    meta: Mapping[str, Scalar] = field(default_factory=lambda: _EMPTY)
    encoded: tuple[bytes | memoryview, ...] | None = field(default=None, repr=False)
    size: int | None = field(default=None, repr=False)
    digest: str | None = field(default=None, repr=False)
    checksum: int | None = field(default=None, repr=False)
    length: float | None = field(default=None, repr=False)

    def __deepcopy__(self, memo: object) -> Payload:
        """Return the payload itself, because it is immutable."""
        return self

    def memory(self, nbytes: int) -> int:
        """Return the bytes of memory counted for this payload: its frame's `nbytes`, and more with much metadata."""
        more = _num_values(self.meta) - FEW_VALUES if self.meta else 0
        return nbytes + PER_VALUE * max(0, more)


def _num_values(value: object) -> int:
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return 1 + sum(map(_num_values, inside))


class StepId(NamedTuple):
    """The round and the step (exchange within the round) to which a message belongs. Steps are ordered by time."""

    round: int
    step: int


as_step: Callable[[tuple[int, int]], StepId] = partial(tuple.__new__, StepId)
"""Create a `StepId` from its fields, faster than by the Python call of a named tuple."""


class LogicalId(NamedTuple):
    """The identity of a message on an edge: the same for every repetition, also after a restart of its sender.

    By it a node waits for a message, asks for it, sends it again and accepts it once. `part` numbers several messages
    of one kind and step from 0; it is 0 if there is only one.
    """

    kind: Kind
    at: StepId
    part: int = 0


class MessageId(NamedTuple):
    """The identity of one transmission of a message on its edge.

    `incarnation` is the number of the sender's restarts, `attempt` counts resends.
    """

    kind: Kind
    incarnation: int
    at: StepId
    part: int
    attempt: int

    @property
    def logical(self) -> LogicalId:
        """The identity of the message itself, without the sender's restarts and the attempt."""
        return LogicalId(self.kind, self.at, self.part)


as_message_id: Callable[[tuple[Kind, int, StepId, int, int]], MessageId] = partial(tuple.__new__, MessageId)
"""Create a `MessageId` from its fields, faster than by the Python call of a named tuple."""


PeerMessage: TypeAlias = tuple[NodeId, LogicalId]
"""A message as one of its two nodes knows it: the other node, and the message's identity."""


class Message(NamedTuple):
    """One message of one directed edge. It is a tuple, because a fleet makes very many.

    Attributes:
        src: the sender.
        dst: the receiver.
        kind: the purpose of the message.
        epoch: the number of the sender's restarts.
        round: the round of the algorithm.
        step: the number of the exchange within the round.
        attempt: the number of times that the message was sent before.
        payload: the contents.
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
        """The step (round, and number of the exchange within it) to which the message belongs."""
        return as_step((self.round, self.step))

    @property
    def id(self) -> MessageId:
        """The identity of this transmission among all messages of its edge."""
        return as_message_id((self.kind, self.epoch, as_step((self.round, self.step)), 0, self.attempt))

    @property
    def logical(self) -> LogicalId:
        """The message's identity without the number of the sender's restarts and of the attempt."""
        return LogicalId(self.kind, self.at)


def answer_to(message: Message, kind: Kind, epoch: int, payload: Payload) -> Message:
    """Return a message of `kind` back to the sender of `message`, for the same step and attempt.

    `epoch` is how often the node that answers has restarted.
    """
    src, dst, _, _, round, step, attempt, _ = message
    return tuple.__new__(Message, (dst, src, kind, epoch, round, step, attempt, payload))


Outbox: TypeAlias = Mapping[NodeId, Payload]
"""The contents of a node's messages in one step, by receiver; receivers of equal contents have the same object."""


class Multicast(NamedTuple):
    """A message that a node sends to one or several others at one instant.

    `dsts` are all different. `payloads` has the payload for each, in the same order; receivers of equal contents have
    the same object.
    """

    src: NodeId
    dsts: tuple[NodeId, ...]
    id: MessageId
    payloads: tuple[Payload, ...]

    @classmethod
    def first(cls, src: NodeId, kind: Kind, incarnation: int, at: StepId, outbox: Outbox) -> Multicast:
        """Return a multicast with the first transmission of a message to each destination of `outbox`."""
        return as_multicast((src, tuple(outbox), as_message_id((kind, incarnation, at, 0, 0)), tuple(outbox.values())))

    @classmethod
    def of(cls, message: Message) -> Multicast:
        """Return a message as a multicast with a single receiver."""
        return as_multicast((message.src, (message.dst,), message.id, (message.payload,)))

    @property
    def messages(self) -> list[Message]:
        """The messages of the multicast, one for each receiver."""
        src, dsts, (kind, incarnation, (round, step), _, attempt), payloads = self
        new = tuple.__new__  # without the call in Python that a named tuple makes
        return [
            new(Message, (src, dst, kind, incarnation, round, step, attempt, payload))
            for dst, payload in zip(dsts, payloads, strict=True)
        ]

    def after(self, count: int) -> Multicast:
        """Return the multicast without its first `count` receivers."""
        return self._replace(dsts=self.dsts[count:], payloads=self.payloads[count:])


as_multicast: Callable[[tuple[NodeId, tuple[NodeId, ...], MessageId, tuple[Payload, ...]]], Multicast] = partial(
    tuple.__new__, Multicast
)
"""Create a `Multicast` from its fields, faster than by the Python call of a named tuple."""


def messages_of(multicasts: Iterable[Multicast]) -> list[Message]:
    """Return the single messages of multicasts, one for each receiver."""
    return [message for multicast in multicasts for message in multicast.messages]


def unicasts(messages: Iterable[Message]) -> list[Multicast]:
    """Return each message as a multicast with one receiver."""
    return [Multicast.of(message) for message in messages]


_src = itemgetter(0)
_in_order = itemgetter(*map(Message._fields.index, ("src", "round", "step", "epoch", "attempt")))
_acknowledged_in_order = attrgetter("message.dst", "message.round", "message.step", "message.epoch")


class Acknowledgement(NamedTuple):
    """A receiver's answer to a message of this node: accepted (`taken`), or refused for good."""

    message: Message
    taken: bool


class Inbox:
    """The messages that one wait collected, iterated by (src, round, step), never by arrival.

    `acknowledgements` has the answers to this node's own messages since its last wait, where delivery is acknowledged.
    """

    __slots__ = ("acknowledgements", "messages", "missing")

    def __init__(
        self,
        messages: Sequence[Message] = (),
        missing: Sequence[NodeId] = (),
        acknowledgements: Sequence[Acknowledgement] = (),
    ) -> None:
        """Sort the messages; `missing` are awaited nodes whose message did not come in time."""
        alone = len(set(map(_src, messages))) == len(messages)  # each the only one of its sender
        self.messages = tuple(sorted(messages, key=_src if alone else _in_order))
        self.missing = tuple(sorted(missing)) if missing else ()
        self.acknowledgements = tuple(sorted(acknowledgements, key=_acknowledged_in_order)) if acknowledgements else ()

    @property
    def returned(self) -> Iterator[Message]:
        """This node's own messages that their receivers refused, so that their contents belong to this node again."""
        return (each.message for each in self.acknowledgements if not each.taken)

    def without(self, message: Message) -> Inbox:
        """Return a copy of the inbox without `message`, whose sender counts as missing."""
        left = [m for m in self.messages if m is not message]
        return Inbox(left, (*self.missing, message.src), self.acknowledgements)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


class Role(StrEnum):
    """The role of a node in the fleet."""

    CLIENT = "client"
    SERVER = "server"


class View(NamedTuple):
    """One node's view of one round. A tuple, because every node gets one in each round.

    The mixing matrix is in receiver-row convention, `X+ = M X`: `in_weights[j]` is M_ij, the weight that this node
    gives to a message from j; `out_weights[j]` is M_ji, the weight that j gives to a message of this node;
    `self_weight` is M_ii. `in_neighbors` is None where senders choose their receivers and this node does not know its
    senders: then `may_hear` are the possible senders, and `may_send_to` the nodes that may expect a message of this
    one. `active` is False in a round in which this node neither trains nor sends (a client that the server did not
    sample).
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
