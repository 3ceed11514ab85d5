"""A node says that its process did not run where that is so, and not where its fleet's clock was set meanwhile."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from netdfl.core.clock import NS_PER_S, RealClock
from netdfl.host import living


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_clock_that_is_set_at_the_start_is_no_time_in_which_a_process_did_not_run(
    stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(living, "FLUSH_S", 0.01)
    monkeypatch.setattr(living, "STOPPED_S", 20.0 if not stopped else 0.2)
    told: list[str] = []
    clock, started = RealClock(time.monotonic_ns()), asyncio.Event()

    def begin() -> None:
        clock.start_ns -= 60 * NS_PER_S  # the fleet had begun a minute ago
        started.set()
        if stopped:
            time.sleep(0.5)

    def tell(kind: str, **more: object) -> None:
        told.append(kind)

    node = SimpleNamespace(clock=clock, host=SimpleNamespace(started=started, tell=tell))
    asyncio.get_running_loop().call_soon(begin)
    await living.LivingNode._nap(node)  # type: ignore[arg-type]
    assert told == (["stopped"] if stopped else [])
