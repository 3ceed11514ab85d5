"""A clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class HandTimer:
    def __init__(self, at_ns: int, name: tuple[Any, ...], callback: Callable[[], None]) -> None:
        self.at_ns, self.name, self.callback, self.live = at_ns, name, callback, True

    def cancel(self) -> None:
        self.live = False


class HandClock:
    """Stands still until it is moved; then every timer that is due fires."""

    def __init__(self) -> None:
        self.ns = 0
        self.timers: list[HandTimer] = []

    def now_ns(self) -> int:
        return self.ns

    async def sleep_until(self, at_ns: int) -> None:
        raise AssertionError("nobody sleeps here")

    def call_at(self, at_ns: int, name: tuple[Any, ...], callback: Callable[[], None]) -> HandTimer:
        self.timers.append(HandTimer(at_ns, name, callback))
        return self.timers[-1]

    def move_to(self, ns: int) -> None:
        self.ns = ns
        for timer in self.timers:
            if timer.live and timer.at_ns <= ns:
                timer.live = False
                timer.callback()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
