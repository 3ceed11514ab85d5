"""A process that is stopped for a while, as a busy machine stops it, changes nothing of how a run goes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from netdfl.core.noticed import TICK_S, noticed_timeout
from tests.supervisor.stopping import IN_A_ROUND, all_wrong

SHORT_S, LONG_S = 4.0, 6.0
SAMPLE = {
    SHORT_S: (IN_A_ROUND, "a node that lives again attends"),
    LONG_S: ("a node that has finished leaves",),
}
"""For how long who is stopped at which step; `tests.soak.stopped_at_each_step` has all of them, and ten seconds."""


def test_a_process_that_is_stopped_at_any_step_of_what_nodes_and_supervisor_say_changes_nothing(tmp_path: Path) -> None:
    assert all_wrong({step: for_s for for_s, steps in SAMPLE.items() for step in steps}, tmp_path) == {}


async def test_a_time_out_does_not_count_the_time_in_which_its_process_did_not_run() -> None:
    """What came meanwhile is read before the time-out is over."""
    reads, writes = asyncio.Event(), asyncio.get_running_loop()
    writes.call_later(3 * TICK_S, time.sleep, 10 * TICK_S)  # as if the process were stopped
    writes.call_later(4 * TICK_S, writes.call_later, TICK_S / 2, reads.set)
    async with noticed_timeout(5 * TICK_S):
        await reads.wait()


async def test_a_time_out_ends_what_never_comes_and_no_other() -> None:
    with pytest.raises(TimeoutError):
        async with noticed_timeout(2 * TICK_S):
            await asyncio.Event().wait()
    async with noticed_timeout(TICK_S):
        pass
    async with noticed_timeout(None):
        await asyncio.sleep(2 * TICK_S)
    await asyncio.sleep(2 * TICK_S)
