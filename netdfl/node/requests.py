"""Requests of peers, which a node answers when they come, whatever round it is in.

In pairwise methods (AD-PSGD) one node asks another for its vector. The family's loop gives the function that answers.
Requests that come before this function is there are kept.

Relies on: a family's loop that takes its answering function away while it asks: an exchange of two vectors must be
atomic.

Why: Peers ask when they are ready, in whatever round this node is; a node that answered only between its rounds would
hold them up. An early request is kept and not refused, since its sender waits. The last answer to each peer is
remembered for a diagnosis, which must tell a lost reply from a request that waits.
"""

from __future__ import annotations

from collections.abc import Callable

from netdfl.core.bounds import WINDOW
from netdfl.core.errors import MessageError
from netdfl.core.types import Message, NodeId
from netdfl.node.ledger import NodeLedger
from netdfl.transport.base import Fate

MOST_KEPT = WINDOW
"""How many requests of one sender are kept. Each time that a request is sent again, it counts as another one."""


class Requests:
    """The requests of peers to one node: passed to the function that answers them, and kept until there is one."""

    def __init__(self, ledger: NodeLedger, is_full: Callable[[NodeId], bool] = lambda peer: False) -> None:
        """Record refused requests in `ledger`; keep a peer's requests while `is_full` says that it takes no answers.

        `answered` is the round and step of the last answer, by peer.
        """
        self._ledger, self._is_full = ledger, is_full
        self._answer: Callable[[Message], None] | None = None
        self._kept: list[Message] = []
        self.answered: dict[NodeId, tuple[int, int]] = {}

    @property
    def serving(self) -> bool:
        """Whether the node answers requests of peers now: a function that does so is set."""
        return self._answer is not None

    @property
    def kept(self) -> tuple[tuple[NodeId, int, int], ...]:
        """The requests that wait for an answer from this node, as (sender, round, step)."""
        return tuple((message.src, message.round, message.step) for message in self._kept)

    def deliver(self, message: Message) -> Fate | None:
        """Answer a request, or keep it for later; refuse a malformed one.

        None: the request must be sent again, because enough requests of its sender are kept already.
        """
        if self._answer is None or self._is_full(message.src):
            if sum([each.src == message.src for each in self._kept]) >= MOST_KEPT:
                return None
            self._kept.append(message)
            return Fate.DELIVERED
        try:
            self._answer(message)
        except MessageError as error:
            self._ledger.refused((message.src, message.dst), error.reason, str(error))
            return Fate.REFUSED
        return Fate.DELIVERED

    def serve(self, answer: Callable[[Message], None] | None) -> None:
        """Set the function that answers requests, and pass it the kept ones; None: keep requests again."""
        self._answer = answer
        kept, self._kept = self._kept, []
        for message in kept:
            self.deliver(message)
