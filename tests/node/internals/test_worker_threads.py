"""The threads of a worker are begun as they are needed, and end with it."""

from __future__ import annotations

import asyncio
import threading

from netdfl.node.worker import BatchWorker, ThreadWorker
from tests.node.batches import Batches, under_way


async def test_a_worker_that_is_closed_finishes_what_waits_and_ends_its_thread() -> None:
    batches = Batches()
    worker = BatchWorker(batches)
    tasks = await under_way(worker, batches, 1, 2)
    worker.close()
    batches.let.release(2)
    assert await asyncio.wait_for(asyncio.gather(*tasks), timeout=60) == [1, 2]
    (thread,) = worker._threads
    await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()


async def test_threads_are_begun_as_they_are_needed_up_to_the_most_and_each_begins_once() -> None:
    begun, let = list[str](), threading.Event()
    worker = ThreadWorker(2, begin=lambda: begun.append(threading.current_thread().name))
    tasks = [asyncio.create_task(worker.run("train", let.wait, 60)) for _ in range(3)]
    await asyncio.sleep(0)
    assert len(worker._threads) == 2
    let.set()
    assert await asyncio.gather(*tasks) == [True] * 3
    assert len(begun) == 2
    worker.close()
