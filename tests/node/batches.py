"""Work that is done by batches, for the tests of workers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from netdfl.node.worker import BatchWorker


class Batches:
    """Computes calls in batches, each when it is let; `sizes` says how many were in each."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.let, self.begun = threading.Semaphore(0), threading.Semaphore(0)
        self.fails = False

    def __call__(self, calls: Sequence[Callable[[], object]]) -> list[tuple[object, BaseException | None]]:
        self.sizes.append(len(calls))
        self.begun.release()
        assert self.let.acquire(timeout=60)
        if self.fails:
            raise MemoryError("the whole batch")
        return [(call(), None) for call in calls]


async def under_way(worker: BatchWorker, batches: Batches, *values: int) -> list[asyncio.Task[int]]:
    """The first call is computed by itself, and those after it wait."""
    first = asyncio.create_task(worker.run("train", int, values[0]))
    assert await asyncio.to_thread(batches.begun.acquire, timeout=60)
    rest = [asyncio.create_task(worker.run("train", int, value)) for value in values[1:]]
    await asyncio.sleep(0)
    return [first, *rest]
