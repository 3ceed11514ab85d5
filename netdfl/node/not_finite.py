"""The treatment of messages whose numbers can't be computed with: NaN, infinity, or squares that are infinite.

Relies on: `Payload.length`: the result of a look is kept with the payload, so all its receivers in a process look once.

Why: A node that mixes such a message has a model that is not finite, and fails in its next local round, far from the
node that made the number. A check of messages names the sender.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf, isfinite
from typing import TYPE_CHECKING

from netdfl.algorithms.exchange import OnNotFinite
from netdfl.core.errors import NotFiniteMessage
from netdfl.core.types import Inbox, Kind, Message, NodeId
from netdfl.mixing.base import LEAST_WEIGHT
from netdfl.mixing.payloads import MODEL, largest, length_of
from netdfl.node.ledger import NodeLedger
from netdfl.node.shares import weight_in

if TYPE_CHECKING:
    from torch import Tensor

LONGEST = sys.float_info.max
"""The length that a model x / w counts as having if its push-sum weight w is 0."""
OUTLYING = 1e4
"""A model is out of proportion if it is more than this many times as long as the longest model before."""
HEAVY = 8.0
"""A push-sum weight is out of proportion if it is more than this many times as large as the largest weight before."""


@dataclass
class NonFinitePolicy:
    """One node's policy on messages with NaN or infinity, from the scenario's `on_not_finite`: refuse, count, or pass.

    Attributes:
        how: the choice of the scenario: `refuse`, `count` or `pass`.
        ledger: records the messages that are mixed although they hold NaN or infinity.
        mixed: the senders of those messages so far.
    """

    how: OnNotFinite
    ledger: NodeLedger
    mixed: set[NodeId] = field(default_factory=set)
    _longest: float = 0.0
    _usual: dict[str, float] = field(default_factory=dict)
    _outlying: set[tuple[str, NodeId]] = field(default_factory=set)

    @staticmethod
    def not_finite(inbox: Inbox) -> list[Message]:
        """Return the messages of `inbox` with NaN or infinity, or with numbers whose squares are infinite."""
        return [
            message
            for message in inbox
            if (length := message.payload.length) == inf or (length is None and length_of(message.payload) == inf)
        ]

    @staticmethod
    def only_finite(inbox: Inbox) -> Inbox:
        """Return `inbox` itself; raise NotFiniteMessage with the first message that holds NaN or infinity."""
        for message in NonFinitePolicy.not_finite(inbox):
            raise NotFiniteMessage(
                f"message {message.src}->{message.dst} of round {message.round}: {largest(message.payload)}",
                message,
            )
        return inbox

    def requests(self, answer: Callable[[Message], None] | None) -> Callable[[Message], None] | None:
        """Return the function `answer` for peers' requests, wrapped to refuse or count those with NaN or infinity."""
        return answer if answer is None or self.how == "pass" else partial(self._look_and, answer)

    def _look_and(self, answer: Callable[[Message], None], request: Message) -> None:
        if self.how == "refuse":
            self.only_finite(Inbox([request]))
        else:
            self.count(self.not_finite(Inbox([request])))
        answer(request)

    def screen(self, inbox: Inbox) -> Inbox:
        """Return `inbox` itself; raise NotFiniteMessage with the first message that holds NaN or infinity.

        Each sender's first model, and first weight, that is far larger than all before is recorded. It is mixed
        nevertheless, because it may be valid; but if the run fails, the record names its sender.
        """
        data = inbox.messages
        sizes = [each.payload.length or length_of(each.payload) for each in data]  # mostly without a call
        if not data or (most := max(sizes)) <= self._longest:
            return inbox
        if most == inf:
            return self.only_finite(inbox)
        if data[0].kind is Kind.DATA and MODEL in data[0].payload.arrays:
            if "w" in data[0].payload.meta:
                self._compare("model", OUTLYING, data, [length_of_model(message) for message in data])
                self._compare("weight", HEAVY, data, [weight_in((message.payload,)) for message in data])
            else:
                self._compare("model", OUTLYING, data, sizes)
                self._longest = self._usual["model"]
        return inbox

    def _compare(self, of: str, factor: float, data: Sequence[Message], sizes: Sequence[float]) -> None:
        """Record each sender of `data` whose model or push-sum weight (`of` says which) is far larger than usual.

        That is more than `factor` times as large. `sizes` has the size in each message of `data`. The usual size is the
        largest one in earlier messages; if there were none, it is the smallest of `sizes`.
        """
        usual = most = self._usual.get(of) or max(0.0, min(sizes))
        for message, size in zip(data, sizes, strict=True):
            if not usual or size <= factor * usual:
                most = max(most, size)
            elif (of, message.src) not in self._outlying:
                self._outlying.add((of, message.src))
                self.ledger.outlier(message, of, size, usual)
        self._usual[of] = most

    def count(self, messages: list[Message]) -> None:
        """Record `messages`, which will be mixed although they hold NaN or infinity."""
        for message in messages:
            self.mixed.add(message.src)
            self.ledger.mixed_not_finite(message)

    def blame(self, x: Tensor) -> str:
        """Return a text for a failed local round's error, which names the senders of NaN or infinity in the model `x`.

        It is empty if `x` is finite.
        """
        if isfinite(float(x.sum())):
            return ""
        senders = "".join(f", as what node {src} had sent" for src in sorted(self.mixed))
        return f": the model was not finite when the round began{senders}"


def length_of_model(message: Message) -> float:
    """Return the Euclidean length of the model in a message: x, or x / w with push-sum; 0 if there is none."""
    payload = message.payload
    weight = payload.meta.get("w", 1.0)
    if payload.length is None or MODEL not in payload.arrays or type(weight) is not float:
        return 0.0
    if weight >= LEAST_WEIGHT:
        return payload.length / weight
    returned = message.epoch > 0  # a node that lost its state begins without weight
    return 0.0 if weight or returned or not payload.length else LONGEST
