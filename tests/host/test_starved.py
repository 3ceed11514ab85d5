"""A local round that had to wait for a processor says how much of one it got."""

from __future__ import annotations

import time

import pytest

from netdfl.host.workers import STARVED_S, SlowWorker
from netdfl.node.worker import ThreadWorker


@pytest.mark.parametrize("factor", [1.0, 2.0])
async def test_what_a_round_got_of_a_processor_is_kept_where_that_is_little(factor: float) -> None:
    worker = SlowWorker(ThreadWorker())
    worker.factor = factor
    await worker.run("train", time.sleep, 4 * STARVED_S)
    assert worker.cpu_s is not None
    assert worker.cpu_s < factor * 2 * STARVED_S


async def test_other_work_is_no_local_round() -> None:
    worker = SlowWorker(ThreadWorker())
    await worker.run("mix", time.sleep, 4 * STARVED_S)
    assert worker.cpu_s is None
