"""What a node does with messages that hold NaN or infinity, before anything is mixed.

Who mixes such a message has a model that is not finite from then on, and fails in its next local round, far
from whoever made the number. So the message is where it is looked for: its sender is known there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING

from netdfl.algorithms.exchange import OnNotFinite
from netdfl.core.errors import NotFiniteMessage
from netdfl.core.types import Inbox, Message, NodeId
from netdfl.mixing.payloads import is_finite
from netdfl.node.ledger import NodeLedger

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Screen:
    """The scenario's `on_not_finite` at one node. `mixed` are the senders of what was mixed all the same, so far."""

    how: OnNotFinite
    ledger: NodeLedger
    mixed: set[NodeId] = field(default_factory=set)

    def requests(self, answer: Callable[[Message], None] | None) -> Callable[[Message], None] | None:
        """`answer`, once a request has been looked at."""
        return answer if answer is None or self.how == "pass" else partial(self._look_and, answer)

    def _look_and(self, answer: Callable[[Message], None], request: Message) -> None:
        if self.how == "refuse":
            only_finite(Inbox([request]))
        else:
            self.count(not_finite(Inbox([request])))
        answer(request)

    def count(self, messages: list[Message]) -> None:
        """Record what is about to be mixed all the same."""
        for message in messages:
            self.mixed.add(message.src)
            self.ledger.mixed_not_finite(message)

    def blame(self, x: Tensor) -> str:
        """What to say of a local round that began at `x` and failed: whether `x` was at fault, and who had sent it."""
        if isfinite(float(x.sum())):
            return ""
        senders = "".join(f", as what node {src} had sent" for src in sorted(self.mixed))
        return f": the model was not finite when the round began{senders}"


def not_finite(inbox: Inbox) -> list[Message]:
    """The messages that hold NaN or infinity."""
    return [message for message in inbox if not (message.payload.finite or is_finite(message.payload))]


def only_finite(inbox: Inbox) -> Inbox:
    """`inbox` itself. Raises NotFiniteMessage with the first message that holds NaN or infinity."""
    for message in not_finite(inbox):
        raise NotFiniteMessage(
            f"message {message.src}->{message.dst} of round {message.round}: NaN or infinity among its numbers",
            message,
        )
    return inbox
