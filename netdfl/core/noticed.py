"""Time-outs that count only the time in which this process ran.

After a process was stopped, or got no processor on a busy machine, the data that arrived meanwhile is still unread.
A clock that went on without the process would end a wait for data that is already there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TICK_S = 0.1


@asynccontextmanager
async def noticed_timeout(limit_s: float | None) -> AsyncIterator[None]:
    """Raise TimeoutError inside the context once this process has run for `limit_s` seconds; None: never."""
    if limit_s is None:
        yield
        return
    async with asyncio.timeout(None) as limit:
        counting = asyncio.create_task(_count_down(limit_s, limit))
        try:
            yield
        finally:
            counting.cancel()


async def _count_down(left_s: float, limit: asyncio.Timeout) -> None:
    """Let `limit` expire after `left_s` seconds, counted in short sleeps; a sleep that was too long counts less."""
    clock = asyncio.get_running_loop().time
    while left_s > 0:
        began_s = clock()
        await asyncio.sleep(TICK_S)
        left_s -= TICK_S * min(1.0, TICK_S / (clock() - began_s))
    limit.reschedule(clock())
