"""The part of a checkpoint that is about messages, so that a node takes each message once, also after a restart.

It is made at the end of a round, together with the state of the algorithm. It holds the senders whose messages the node
has read, the messages that it refused, and its own messages that are unacknowledged. The node acknowledges what it has
read only once this is durable; until then each sender keeps its message and sends it again if the node crashes.
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
    """A message of the node that is unacknowledged: its receiver, and its frame as a uint8 array of shape (n,).

    Checkpoints hold the name of this class.
    """

    dst: NodeId
    frame: Tensor


class Remembered(NamedTuple):
    """The messages that a node must remember over a restart. Checkpoints hold the name of this class.

    Attributes:
        read: the senders whose messages were read, as one bit set for each step (`Mailbox.memory`).
        refused: (sender, round, step) of each refused message.
        unacknowledged: the node's own messages whose fate it does not know.
        round: the round that comes next; -1: `gone` is unknown.
        gone: the nodes that get no share of that round.
    """

    read: Mapping[str, int] = _NOTHING
    refused: tuple[tuple[NodeId, int, int], ...] = ()
    unacknowledged: tuple[Unacknowledged, ...] = ()
    round: int = -1
    gone: tuple[NodeId, ...] = ()

    def whom_left_out(self) -> tuple[int, frozenset[NodeId]] | None:
        """Return the next round with the nodes that get no share of it; None if they are unknown."""
        return None if self.round < 0 else (self.round, frozenset(self.gone))


def remember(node: Node) -> Remembered:
    """Return which messages `node` has read, has refused, or must send again after a restart, to be saved on disk."""
    read = node.mailbox.memory()
    if node.delivery is None:
        return Remembered(read)
    unacknowledged = tuple(Unacknowledged(message.dst, _frame(message)) for message in node.delivery.unsettled())
    refused = sorted((src, *id.at) for src, id in node.delivery.refused)
    return Remembered(read, tuple(refused), unacknowledged)


def with_shares(memory: Remembered, node: Node, round: int) -> Remembered:
    """Return `memory` with the nodes that get no share of `round`, which is next, if the method gives shares.

    A later life must give the same shares, as some of them may have been taken.
    """
    return memory._replace(round=round, gone=tuple(sorted(node.waits.gone))) if node.mailbox.keep_late else memory


def durable(node: Node, memory: Remembered) -> None:
    """Let `node` acknowledge to their senders the messages in `memory` that it read, as this is now saved on disk.

    From now on the node gives shares of the next round as `memory` says, whoever leaves or returns.
    """
    node.leave_out(memory.whom_left_out())
    if node.delivery is not None:
        node.delivery.saved(memory.read)


def recall(node: Node, memory: Remembered) -> None:
    """Restore to a restarted `node` what it had saved about messages.

    The node refuses copies of messages that it had read, and sends its unacknowledged messages again. Its clock must be
    running.
    """
    node.leave_out(memory.whom_left_out())
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
