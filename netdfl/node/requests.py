"""What peers ask of a node beside its rounds: answered as it comes, at any time, each request once."""

from __future__ import annotations

from collections.abc import Callable

from netdfl.core.errors import MessageError
from netdfl.core.types import Message, NodeId
from netdfl.node.ledger import NodeLedger
from netdfl.transport.base import Fate


class Requests:
    """Requests on their way from the mailbox to whoever answers them; kept until somebody does."""

    def __init__(self, ledger: NodeLedger) -> None:
        """Count what is refused in `ledger`; `answered` is the round and step last answered, by peer."""
        self._ledger = ledger
        self._answer: Callable[[Message], None] | None = None
        self._kept: list[Message] = []
        self.answered: dict[NodeId, tuple[int, int]] = {}

    @property
    def serving(self) -> bool:
        """Whether requests are answered now."""
        return self._answer is not None

    @property
    def kept(self) -> tuple[tuple[NodeId, int, int], ...]:
        """What has come and is to be answered yet, as (sender, round, step)."""
        return tuple((message.src, message.round, message.step) for message in self._kept)

    def deliver(self, message: Message) -> Fate:
        """Take a request; a malformed one is refused, and changes nothing."""
        if self._answer is None:
            self._kept.append(message)
            return Fate.DELIVERED
        try:
            self._answer(message)
        except MessageError as error:
            self._ledger.refused((message.src, message.dst), error.reason, str(error))
            return Fate.REFUSED
        return Fate.DELIVERED

    def serve(self, answer: Callable[[Message], None] | None) -> None:
        """Give `answer` every request from now on, beginning with those that came before; None: keep them."""
        self._answer = answer
        kept, self._kept = self._kept, []
        for message in kept:
            self.deliver(message)
