"""Where a node computes: on the loop what is shorter than the way to a thread, in a thread what is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from unittest.mock import ANY

import pytest

from netdfl.node import worker as worker_module
from netdfl.node.worker import BatchWorker, ThreadWorker


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], str]:
    """Work that takes so long by a clock of the test's own, and says in which thread."""
    now = [0.0]
    monkeypatch.setattr(worker_module.time, "thread_time", lambda: now[0])

    def work(seconds: float) -> str:
        now[0] += seconds
        return threading.current_thread().name

    return work


HERE = threading.main_thread().name


async def test_short_work_is_done_on_the_loop_from_the_second_time_on(takes: Callable[[float], str]) -> None:
    worker = ThreadWorker()
    names = [await worker.run("train", takes, took_s) for took_s in (0.0001, 0.0001, 0.01, 0.0001, 0.0001)]
    assert names == ["train", HERE, HERE, "train", HERE]
    assert await worker.run("refine", takes, 0.0001) == "train", "other work may take longer"
    worker.close()


async def test_an_error_of_short_work_is_raised(takes: Callable[[float], str]) -> None:
    worker = ThreadWorker()
    await worker.run("train", takes, 0.0)
    with pytest.raises(ZeroDivisionError):
        await worker.run("train", lambda: 1 // 0)
    worker.close()


async def test_nodes_that_share_threads_or_batches_leave_the_loop_free(takes: Callable[[float], str]) -> None:
    for worker in (ThreadWorker(2), BatchWorker(lambda calls: [(call(), None) for call in calls])):
        assert [await worker.run("train", takes, 0.0) for _ in range(2)] == ["train", "train"]
        worker.close()


class Batches:
    """Computes calls in batches, each when it is let; `sizes` says how many were in each."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.threads = set[threading.Thread]()
        self.let, self.begun = threading.Semaphore(0), threading.Semaphore(0)
        self.fails = False

    def __call__(self, calls: Sequence[Callable[[], object]]) -> list[tuple[object, BaseException | None]]:
        self.sizes.append(len(calls))
        self.threads.add(threading.current_thread())
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


async def test_what_waits_is_one_batch_whose_calls_have_each_their_own_outcome() -> None:
    batches = Batches()
    worker = BatchWorker(batches)
    tasks = await under_way(worker, batches, 1, 2, 3, 4)
    tasks[2].cancel()
    await asyncio.sleep(0)
    batches.let.release(2)
    assert await asyncio.gather(*tasks, return_exceptions=True) == [1, 2, ANY, 4]
    assert tasks[2].cancelled()
    assert batches.sizes == [1, 2]
    worker.close()


async def test_an_error_of_a_whole_batch_is_each_calls() -> None:
    batches = Batches()
    worker = BatchWorker(batches)
    tasks = await under_way(worker, batches, 1, 2, 3)
    batches.fails = True
    batches.let.release(2)
    for task in tasks:
        with pytest.raises(MemoryError, match="the whole batch"):
            await asyncio.wait_for(task, timeout=60)
    worker.close()


async def test_a_worker_that_is_closed_finishes_what_waits_and_ends_its_thread() -> None:
    batches = Batches()
    worker = BatchWorker(batches)
    tasks = await under_way(worker, batches, 1, 2)
    worker.close()
    batches.let.release(2)
    assert await asyncio.wait_for(asyncio.gather(*tasks), timeout=60) == [1, 2]
    (thread,) = batches.threads
    await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()


async def test_threads_are_begun_as_they_are_needed_up_to_the_most_and_each_begins_once() -> None:
    begun, let = list[str](), threading.Event()
    worker = ThreadWorker(2, begin=lambda: begun.append(threading.current_thread().name))
    tasks = [asyncio.create_task(worker.run("train", let.wait, 60)) for _ in range(3)]
    await asyncio.sleep(0)
    let.set()
    assert await asyncio.gather(*tasks) == [True] * 3
    assert len(begun) == 2
    worker.close()


def test_up_to_a_million_numbers_are_spared_a_thread() -> None:
    assert [ThreadWorker().is_short(numel) for numel in (0, 10**6, 10**6 + 1)] == [True, True, False]
