"""Stops a node where it stands, as a busy machine would: it neither computes nor reads, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any

from netdfl.core.types import Message
from netdfl.transport.base import Fate, Sink


class Gate:
    """In front of a node's mailbox and under its coroutine; while it is closed, neither goes on. A `Sink`."""

    def __init__(self, sink: Sink) -> None:
        """Deliver into `sink` while open; begin open."""
        self._sink = sink
        self.closed = False
        self._opened: asyncio.Future[None] | None = None
        self._waiters: list[Callable[[], None]] = []

    async def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run `coroutine`; while the gate is closed, what it waits for may come, but it does not go on."""
        await _Steps(self, coroutine)

    def close(self) -> None:
        """Stop the node at its next step."""
        self.closed = True

    def open(self) -> None:
        """Let it go on."""
        self.closed = False
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)
        waiters, self._waiters = self._waiters, []
        for callback in waiters:
            callback()

    def until_open(self) -> Generator[Any, None, None]:
        """Wait, as `yield from`, until the gate is open."""
        while self.closed:
            self._opened = asyncio.get_running_loop().create_future()
            yield from self._opened

    def deliver(self, message: Message) -> Fate | None:
        """Take the message, or refuse it while closed."""
        return None if self.closed else self._sink.deliver(message)

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back when the mailbox has room, or the gate opens."""
        if self.closed:
            self._waiters.append(callback)
        else:
            self._sink.when_room(callback)


class _Steps(Awaitable[None]):
    """A coroutine, driven step by step through a gate."""

    def __init__(self, gate: Gate, coroutine: Coroutine[Any, Any, None]) -> None:
        self.gate, self.coroutine = gate, coroutine

    def __await__(self) -> Generator[Any, None, None]:
        step: Callable[[], Any] = partial(self.coroutine.send, None)
        while True:
            try:
                yield from self.gate.until_open()
            except BaseException as error:
                step = partial(self.coroutine.throw, error)
            try:
                waited_for = step()
            except StopIteration:
                return
            try:
                yield waited_for
            except BaseException as error:
                step = partial(self.coroutine.throw, error)
            else:
                step = partial(self.coroutine.send, None)
