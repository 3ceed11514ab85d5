"""Timers that were cancelled are forgotten, and move no clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from netdfl.worlds.simulated.loop import VirtualLoop


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, Any]], seed: int = 0) -> Any:
    """Run `main(loop)` on a new virtual loop."""
    loop = VirtualLoop(seed)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main(loop))


def test_a_cancelled_timer_moves_no_clock() -> None:
    async def main(loop: VirtualLoop) -> int:
        timers = [loop.call_at_ns(10**12, ("t", i), lambda: None) for i in range(5000)]
        for timer in timers:
            timer.cancel()
        await asyncio.sleep(1)
        assert sum(map(len, loop._timers.values())) < 2500
        return loop.now_ns

    assert run(main) == 10**9
