"""The handling of Ctrl-C, SIGTERM and SIGHUP: the first signal ends a run in good order, the second at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that end a run in good order.

    Includes a closed terminal's SIGHUP unless `nohup` ignores it.
    """
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangs_up else ()))


WRITING = "interrupted; the result and the report are being written, Ctrl-C again leaves at once"


class InterruptHandler:
    """The handler of the signals that end a run: the first one ends it in good order, the second at once."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        """Prepare to call `interrupt` at the first signal; it should stop the run and keep its record."""
        self._interrupt = interrupt
        self._over = False

    def __call__(self) -> None:
        """Handle a signal: call `interrupt` at the first one, raise KeyboardInterrupt at the second."""
        if self._over:
            raise KeyboardInterrupt
        self._over = True
        self._interrupt()


@contextmanager
def interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """Handle signals inside the context by calling `interrupt`, if this thread is the one that receives signals.

    The second signal raises KeyboardInterrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    patience = InterruptHandler(interrupt)

    def on_signal(number: int, frame: FrameType | None) -> None:
        patience()

    before = {number: signal.signal(number, on_signal) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


T = TypeVar("T")


def outside_loops(work: Callable[[], T]) -> T:
    """Run `work` in this thread, or in a new one if an event loop runs here; return its result or raise its error."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()
