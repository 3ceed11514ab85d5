"""The treatment of messages that hold NaN or infinity, before they are mixed.

Relies on: `Payload.finite`: the result of a look is kept with the payload, so all its receivers in a process look once.

Why: A node that mixes such a message has a model that is not finite, and fails in its next local round, far from the
node that made the number. A check of messages names the sender.
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
class NonFinitePolicy:
    """The scenario's `on_not_finite` at one node: refuse, count, or pass messages that are not finite.

    Attributes:
        how: the choice of the scenario.
        ledger: records the messages that are mixed nevertheless.
        mixed: the senders of those messages so far.
    """

    how: OnNotFinite
    ledger: NodeLedger
    mixed: set[NodeId] = field(default_factory=set)

    @staticmethod
    def not_finite(inbox: Inbox) -> list[Message]:
        """Return the messages that hold NaN or infinity."""
        return [message for message in inbox if not (message.payload.finite or is_finite(message.payload))]

    @staticmethod
    def only_finite(inbox: Inbox) -> Inbox:
        """Return `inbox` itself; raise NotFiniteMessage with the first message that holds NaN or infinity."""
        for message in NonFinitePolicy.not_finite(inbox):
            raise NotFiniteMessage(
                f"message {message.src}->{message.dst} of round {message.round}: NaN or infinity among its numbers",
                message,
            )
        return inbox

    def requests(self, answer: Callable[[Message], None] | None) -> Callable[[Message], None] | None:
        """Return `answer`, with a check of each request before it."""
        return answer if answer is None or self.how == "pass" else partial(self._look_and, answer)

    def _look_and(self, answer: Callable[[Message], None], request: Message) -> None:
        if self.how == "refuse":
            self.only_finite(Inbox([request]))
        else:
            self.count(self.not_finite(Inbox([request])))
        answer(request)

    def count(self, messages: list[Message]) -> None:
        """Record messages that are about to be mixed although they are not finite."""
        for message in messages:
            self.mixed.add(message.src)
            self.ledger.mixed_not_finite(message)

    def blame(self, x: Tensor) -> str:
        """Return the words of an error that blame the model `x` and its senders for a failed round; empty if finite."""
        if isfinite(float(x.sum())):
            return ""
        senders = "".join(f", as what node {src} had sent" for src in sorted(self.mixed))
        return f": the model was not finite when the round began{senders}"
