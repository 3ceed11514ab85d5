"""Where a node's maths runs: beside the event loop, never on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Worker(Protocol):
    """Runs functions for a node. `what` names the work, for the model of its time."""

    async def run(self, what: str, function: Callable[..., T], *args: Any) -> T:
        """Run `function(*args)` and return its result."""
        ...

    def spare(self, numel: int) -> bool:
        """Whether work on `numel` numbers is short enough to run inline."""
        ...


class ThreadWorker:
    """One thread per process: torch releases the interpreter's lock while it computes."""

    INLINE_NUMEL = 1_000_000

    def __init__(self) -> None:
        """Start no thread before the first use."""
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="train")

    async def run(self, what: str, function: Callable[..., T], *args: Any) -> T:
        """Run in the thread, in order of submission."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *args)

    def spare(self, numel: int) -> bool:
        """Up to a million numbers: a millisecond at most."""
        return numel <= self.INLINE_NUMEL

    def close(self) -> None:
        """Finish what runs and stop the thread."""
        self._executor.shutdown(wait=False, cancel_futures=True)
