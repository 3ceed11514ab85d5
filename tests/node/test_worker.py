"""Where a node computes: on the loop what is shorter than the way to a thread, in a thread what is not."""

from __future__ import annotations

import threading
from collections.abc import Callable

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
