"""Time as a node sees it: real or virtual, always through the running event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """The only source of time in a node. Integer nanoseconds since the fleet's common start."""

    def now_ns(self) -> int:
        """Nanoseconds since the start; negative before it."""
        ...

    async def sleep_until(self, at_ns: int) -> None:
        """Return at `at_ns`, or at once if that is past."""
        ...


class RealClock:
    """The machine's monotonic clock, which all processes of one machine share."""

    def __init__(self, start_ns: int = 0) -> None:
        """Count from `start_ns`, a reading of `time.monotonic_ns()`."""
        self.start_ns = start_ns

    def now_ns(self) -> int:
        """Nanoseconds since the start; negative before it."""
        return time.monotonic_ns() - self.start_ns

    async def sleep_until(self, at_ns: int) -> None:
        """Return at `at_ns`, or at once if that is past."""
        await asyncio.sleep(max(0, at_ns - self.now_ns()) / NS_PER_S)
