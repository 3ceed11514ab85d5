"""A gate that stops a node's coroutine at its next `await`, as a busy machine stops a process.

A scripted pause must stop the code of the node and nothing else: messages to the node still arrive, and its timers
still run out. So the gate drives the coroutine step by step, and takes no further step while it is closed.

Relies on: `coroutine.send`, by which any coroutine can be driven from outside, and futures that stay done until
somebody looks.

Why: Cancelling and starting again would lose the node's place in its loop; stopping the event loop would stop all other
nodes of it. Messages wait before the mailbox meanwhile (`host/network.py`).
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import cast


class PauseGate:
    """The gate through which a node's coroutine takes its steps; while the gate is closed, the coroutine is stopped."""

    def __init__(self) -> None:
        """Start with an open gate and without a coroutine."""
        self.closed = False
        self.coroutine: Coroutine[object, None, None] | None = None
        self._opened: asyncio.Future[None] | None = None

    async def run(self, coroutine: Coroutine[object, None, None]) -> None:
        """Run `coroutine`; while the gate is closed, the coroutine stays stopped even if its result is ready."""
        self.coroutine = coroutine
        await self._steps(coroutine)

    def close(self) -> None:
        """Close the gate: stop the coroutine before its next step."""
        self.closed = True

    def open(self) -> None:
        """Open the gate: let the coroutine continue."""
        self.closed = False
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    @types.coroutine
    def _steps(self, coroutine: Coroutine[object, None, None]) -> Generator[object, None, None]:
        """Take the steps of `coroutine`, from one `await` to the next; before each step, the gate must be open."""
        onward = step = cast("Callable[[], object]", partial(coroutine.send, None))
        ending = False
        while True:
            try:
                while self.closed and not ending:
                    self._opened = asyncio.get_running_loop().create_future()
                    yield from self._opened
            except BaseException as error:
                step = partial(coroutine.throw, error)
            try:
                waited_for = step()
            except StopIteration:
                return
            try:
                yield waited_for
            except BaseException as error:
                step = partial(coroutine.throw, error)
                ending = isinstance(error, asyncio.CancelledError)  # a node that is stopped can still be killed
            else:
                step, ending = onward, False
