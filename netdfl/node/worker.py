"""Workers that run the mathematics of nodes outside the event loop, which must stay free for messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeAlias, TypeVar

from netdfl.core.whose import carried
from netdfl.training.alone import CallOutcome

T = TypeVar("T")
Compute: TypeAlias = Callable[[Sequence[Callable[[], object]]], Sequence[CallOutcome]]
"""A function that makes several calls and returns, for each, its result and the error that it raised."""


class Worker(Protocol):
    """The interface for running a node's computations, such as training, without blocking its event loop."""

    async def run(self, what: str, function: Callable[..., T], *args: object) -> T:
        """Run `function(*args)` and return its result; `what` names the kind of work, to estimate its duration."""
        ...

    def is_short(self, numel: int) -> bool:
        """Return whether work on `numel` numbers is short enough to run inline."""
        ...


class ThreadWorker:
    """A worker with one or a few threads, which run in parallel because torch releases the interpreter's lock."""

    INLINE_NUMEL = 1_000_000
    INLINE_S = 0.002
    """Work that took fewer CPU seconds the last time runs on the event loop, as a thread would cost as much."""

    def __init__(self, threads: int = 1, begin: Callable[[], None] | None = None) -> None:
        """Prepare up to `threads` threads, started when needed; each calls the function `begin` first."""
        self._begin = begin
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._most = threads
        self._threads: list[Thread] = []
        self._under_way = 0
        self._took: dict[str, float] = {}

    async def run(self, what: str, function: Callable[..., T], *args: object) -> T:
        """Return the result of `function(*args)`, run in a thread, in order of submission.

        It is run inline if work of the same kind, `what`, was short the last time and no thread is busy.
        """
        if self._most == 1 and not self._under_way and self._took.get(what, inf) < self.INLINE_S:
            await asyncio.sleep(0)
            return self._timed(what, function, *args)
        if self.INLINE_S:
            function = partial(self._timed, what, function)
        if self._under_way >= len(self._threads) < self._most:
            thread = Thread(target=self._work, name="train", daemon=True)
            self._threads.append(thread)
            thread.start()
        job = _Job(asyncio.get_running_loop(), partial(function, *args) if args else function)
        self._under_way += 1
        self._jobs.put(job)
        try:
            result: T = await job.done
            return result
        finally:
            self._under_way -= 1

    def _timed(self, what: str, function: Callable[..., T], *args: object) -> T:
        began = time.thread_time()
        try:
            return function(*args)
        finally:
            self._took[what] = time.thread_time() - began

    def is_short(self, numel: int) -> bool:
        """Return whether work on `numel` numbers runs inline: up to a million take at most about a millisecond."""
        return numel <= self.INLINE_NUMEL

    def close(self) -> None:
        """Stop the threads after the submitted work is done."""
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        if self._begin is not None:
            self._begin()
        while (job := self._jobs.get()) is not None:
            if not job.done.cancelled():
                job.end(*_outcome(job.function))
            del job


class BatchWorker(ThreadWorker):
    """A worker with one thread that computes all calls waiting at a time as one batch."""

    INLINE_S = 0.0

    def __init__(self, compute: Compute) -> None:
        """Compute each batch of waiting calls by `compute`, which gets them as functions without arguments."""
        super().__init__()
        self._compute = compute

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            jobs = [first, *self._waiting()]
            jobs = [job for job in jobs if not job.done.cancelled()]
            for job, outcome in zip(jobs, self._outcomes(jobs), strict=True):
                job.end(*outcome)
            del first, jobs

    def _waiting(self) -> list[_Job]:
        jobs: list[_Job] = []
        with suppress(Empty):
            while (job := self._jobs.get_nowait()) is not None:
                jobs.append(job)
            self._jobs.put(None)
        return jobs

    def _outcomes(self, jobs: Sequence[_Job]) -> Sequence[tuple[object, BaseException | None]]:
        try:
            return self._compute([job.function for job in jobs])
        except BaseException as error:
            return [(None, error)] * len(jobs)


class _Job:
    """A call submitted to a worker's thread, and its result for the event loop; cheaper than an executor's future."""

    __slots__ = ("done", "function", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
        self.loop, self.function, self.done = loop, function, loop.create_future()

    def end(self, result: object, error: BaseException | None) -> None:
        """Pass the result or the error from the thread to the event loop."""
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
            self.loop.call_soon_threadsafe(settle, self.done, result, error)


def settle(done: asyncio.Future[Any], result: object = None, error: BaseException | None = None) -> None:
    """Set the result or error of a future, unless it is done already because its waiter was cancelled."""
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(carried(error))


def _outcome(function: Callable[[], object]) -> tuple[object, BaseException | None]:
    try:
        return function(), None
    except BaseException as error:
        return None, error
