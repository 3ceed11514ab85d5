"""What a node must remember beside its algorithm's state, so that a later life takes each message once.

Made at a round's end, together with the state: whose messages it has read, what it refused, and its own
messages of which it does not know what became. It acknowledges what it has read only once this is durable:
what it took and had not saved is still its sender's to send again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from netdfl.compression.vector import vector
from netdfl.core.types import Kind, LogicalId, Message, NodeId, StepId
from netdfl.node.runtime import Node
from netdfl.transport.wire import Limits, decode, encode

if TYPE_CHECKING:
    from torch import Tensor

_NOBODY = bytes(8)
_NOTHING: Mapping[str, int] = MappingProxyType({})


class Unacknowledged(NamedTuple):
    """An unacknowledged message: its receiver, and its frame as bytes, shape (n,) of uint8."""

    dst: NodeId
    frame: Tensor


class Remembered(NamedTuple):
    """`read`: the senders read, by slot, as `Mailbox.memory` gives them. `refused`: (sender, round, step)."""

    read: Mapping[str, int] = _NOTHING
    refused: tuple[tuple[NodeId, int, int], ...] = ()
    unacknowledged: tuple[Unacknowledged, ...] = ()


def remember(node: Node) -> Remembered:
    """What `node` has to remember now, at the end of a round."""
    read = node.mailbox.memory()
    if node.delivery is None:
        return Remembered(read)
    unacknowledged = tuple(Unacknowledged(message.dst, _frame(message)) for message in node.delivery.unsettled())
    refused = sorted((src, *id.at) for src, id in node.delivery.refused)
    return Remembered(read, tuple(refused), unacknowledged)


def durable(node: Node, memory: Remembered) -> None:
    """`memory` can't be lost any more: acknowledge what is read in it."""
    if node.delivery is not None:
        node.delivery.saved(memory.read)


def recall(node: Node, memory: Remembered) -> None:
    """Go on with what an earlier life of `node` remembered; its time has begun."""
    node.mailbox.remember(memory.read)
    if node.delivery is not None:
        node.delivery.saved(memory.read)
        node.delivery.refused |= {(src, LogicalId(Kind.DATA, StepId(*at))) for src, *at in memory.refused}
        node.delivery.adopt([_message(node.id, sent) for sent in memory.unacknowledged])


def _frame(message: Message) -> Tensor:
    return vector(np.frombuffer(encode(message, _NOBODY, 0), np.uint8))


def _message(src: NodeId, sent: Unacknowledged) -> Message:
    data = sent.frame.cpu().numpy().tobytes()
    header, payload = decode(data, Limits(max_bytes=len(data)))
    return Message(src, sent.dst, header.kind, header.epoch, header.round, header.step, header.attempt, payload)
