"""A server that tells clients which of their reports it did not use, so that both sides agree about each exchange.

Some methods keep halves of one sum at a client and at the server; a lost report would leave a change in one half only.
Each broadcast therefore names every participant whose report to the last request was not used, with the last round of a
report that was. Nothing is added if all reports arrived. The client's side, which takes its change back, is
`netdfl.training.rollback`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple

from netdfl.core.types import Inbox, Message, NodeId, Outbox, Payload, View
from netdfl.mixing.base import AggregationWrapper
from netdfl.mixing.payloads import absurd
from netdfl.training.base import Received, S

if TYPE_CHECKING:
    from torch import Tensor

UNREAD = "unread"


class ConfirmingState(NamedTuple, Generic[S]):
    """The server's record of the rounds in which it asked clients to report their models.

    Attributes:
        inner: the wrapped exchange's state.
        asked: for each client the last round in which it was asked to report.
        read: for each client the last round whose report was used.
    """

    inner: S
    asked: Mapping[NodeId, int]
    read: Mapping[NodeId, int]

    def unread(self) -> Mapping[NodeId, int]:
        """Return the clients whose last requested report was not used, with the round of the last used one, or -1."""
        last = {j: self.read.get(j, -1) for j in self.asked}
        return {j: round for j, round in last.items() if round < self.asked[j]}


@dataclass(frozen=True, kw_only=True)
class ConfirmingAggregation(AggregationWrapper):
    """A wrapper around an exchange whose server names, in each broadcast, clients whose last report it did not use."""

    def init_server(self, x: Tensor, view: View) -> ConfirmingState:
        """Return the server's state before it has asked any client to report."""
        return ConfirmingState(self.inner.init_server(x, view), {}, {})

    def broadcast(self, state: ConfirmingState, x: Tensor, view: View) -> Outbox:
        """Return the wrapped exchange's messages to clients, with a list of clients whose last report was not used."""
        outbox, unread = self.inner.broadcast(state.inner, x, view), state.unread()
        lost = [number for j in outbox if j in unread for number in (j, unread[j])]
        if not lost:
            return outbox
        told = {id(p): Payload(p.arrays, {**p.meta, UNREAD: lost}) for p in outbox.values()}
        return {j: told[id(payload)] for j, payload in outbox.items()}

    def aggregate(self, state: ConfirmingState, x: Tensor, inbox: Inbox, view: View) -> tuple[ConfirmingState, Tensor]:
        """Aggregate as the wrapped exchange does.

        Record which clients were asked to report and whose reports were used.
        """
        inner, model = self.inner.aggregate(state.inner, x, inbox, view)
        asked = dict.fromkeys(view.out_neighbors, view.round)
        read = {message.src: view.round for message in inbox}
        return ConfirmingState(inner, {**state.asked, **asked}, {**state.read, **read}), model

    def adopt(self, inbox: Inbox, like: Tensor, view: View) -> tuple[Tensor, Received] | None:
        """Return a client's start, and the round of its last used report if the broadcast says that one was lost.

        Raises MalformedMessage if the list of clients is invalid.
        """
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
