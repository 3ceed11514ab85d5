"""The messages that a node sends in the background, and the bound on those that wait for a peer.

Handlers of messages answer at once and can't wait, so their answers go in tasks of their own. Such a task waits while
the queue to its receiver is full. A peer that asks without end and reads no answer would leave a task for each
question, so beyond a bound the answers to it are left out.

Relies on: peers that ask again (status queries, probes, requests for a model, messages that are not acknowledged), or
whose requests are held back (`is_full`), so that what is left out is as if a link had lost it.

Why: A send that does not wait is never left out, however many there are at one instant. So the bound acts on peers that
do not read, and on nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from netdfl.core.bounds import WINDOW
from netdfl.core.types import Message, Multicast, NodeId, unicasts

MOST_WAITING = WINDOW
"""How many messages in the background may wait for room in the queue to one peer."""


class BackgroundSends:
    """The messages that one node sends in background tasks."""

    def __init__(
        self,
        send: Callable[[Sequence[Multicast]], Awaitable[None]],
        left_out: Callable[[Message], None] = lambda message: None,
    ) -> None:
        """Send with `send`, which waits while a receiver's queue is full; `left_out` gets each message not sent."""
        self._send, self._left_out = send, left_out
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[NodeId, int] = {}

    def is_full(self, peer: NodeId) -> bool:
        """Return whether so many messages wait for room in the queue to `peer` that no answer to it is sent."""
        return self._waiting.get(peer, 0) >= MOST_WAITING

    def answer(self, message: Message) -> None:
        """Send a message in the background, or drop it if too many messages wait for its receiver."""
        if self.is_full(message.dst):
            self._left_out(message)
        else:
            self.send(message)

    def send(self, message: Message) -> None:
        """Send a message in the background, however many messages wait for its receiver."""
        task = asyncio.get_running_loop().create_task(self._sent(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sent(self, message: Message) -> None:
        waiting, peer = self._waiting, message.dst
        waiting[peer] = waiting.get(peer, 0) + 1
        try:
            await self._send(unicasts((message,)))
        finally:
            waiting[peer] -= 1
