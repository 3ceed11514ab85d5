"""A server that says whose last report it has not read, so that a client's state and its own stay halves of one sum.

With a broadcast goes, for every participant that was asked since then, the last round whose report the
server has used. Nothing is added where all reports came. The client's side is `netdfl.training.rollback`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple

from netdfl.core.types import Inbox, Message, NodeId, Outbox, Payload, View
from netdfl.mixing.base import Around
from netdfl.mixing.payloads import absurd
from netdfl.training.base import Received, S

if TYPE_CHECKING:
    from torch import Tensor

UNREAD = "unread"


class ConfirmingState(NamedTuple, Generic[S]):
    """The wrapped aggregation's state, and by client the last round it was asked in and the last that was read."""

    inner: S
    asked: Mapping[NodeId, int]
    read: Mapping[NodeId, int]

    def unread(self) -> Mapping[NodeId, int]:
        """The clients that were asked and not read since, with the last round that was read; -1: none was."""
        last = {j: self.read.get(j, -1) for j in self.asked}
        return {j: round for j, round in last.items() if round < self.asked[j]}


@dataclass(frozen=True, kw_only=True)
class Confirming(Around):
    """Any aggregation; see the first lines of this file, and `Aggregation`."""

    def init_server(self, x: Tensor, view: View) -> ConfirmingState:
        """Nobody was asked."""
        return ConfirmingState(self.inner.init_server(x, view), {}, {})

    def broadcast(self, state: ConfirmingState, x: Tensor, view: View) -> Outbox:
        """As the wrapped one; participants that were not read are told so, all in one payload."""
        outbox, unread = self.inner.broadcast(state.inner, x, view), state.unread()
        lost = [number for j in outbox if j in unread for number in (j, unread[j])]
        if not lost:
            return outbox
        told = {id(p): Payload(p.arrays, {**p.meta, UNREAD: lost}) for p in outbox.values()}
        return {j: told[id(payload)] for j, payload in outbox.items()}

    def aggregate(self, state: ConfirmingState, x: Tensor, inbox: Inbox, view: View) -> tuple[ConfirmingState, Tensor]:
        """As the wrapped one; note whom this round has asked and whose reports it has used."""
        inner, model = self.inner.aggregate(state.inner, x, inbox, view)
        asked = dict.fromkeys(view.out_neighbors, view.round)
        read = {message.src: view.round for message in inbox}
        return ConfirmingState(inner, {**state.asked, **asked}, {**state.read, **read}), model

    def adopt(self, inbox: Inbox, like: Tensor, view: View) -> tuple[Tensor, Received] | None:
        """As the wrapped one, and what the server says of this client's last report. Raises MalformedMessage."""
        adopted = self.inner.adopt(inbox, like, view)
        if adopted is None:
            return None
        lost = {node: round for message in inbox for node, round in _unread(message)}
        return adopted[0], adopted[1]._replace(last_read=lost.get(view.node))


def _unread(message: Message) -> list[tuple[NodeId, int]]:
    numbers = message.payload.meta.get(UNREAD, [])
    if not isinstance(numbers, list | tuple) or len(numbers) % 2 or any(type(number) is not int for number in numbers):
        raise absurd(message, f"nodes and rounds under {UNREAD!r}", numbers)
    return list(zip(numbers[::2], numbers[1::2], strict=True))
