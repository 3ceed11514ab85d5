"""A fork server whose lines somebody else carries: to those here it is a process with two pipes, like any other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO


class Relayed:
    """Two pipes, and two threads that carry what is in them. A `ServerProcess`."""

    def __init__(self, write: Callable[[bytes], object], read: Callable[[], bytes], kill: Callable[[], object]) -> None:
        """Carry by `write` and `read`, which wait; b"", or any error, is the end. `kill` ends what is behind them."""
        self._kill = kill
        below, above = os.pipe(), os.pipe()
        self.stdin: IO[bytes] | None = os.fdopen(below[1], "wb")
        self.stdout: IO[bytes] | None = os.fdopen(above[0], "rb")
        down = threading.Thread(target=self._down, args=(below[0], write), daemon=True)
        self._up_thread = threading.Thread(target=self._up, args=(above[1], read), daemon=True)
        down.start()
        self._up_thread.start()

    def kill(self) -> None:
        """End what is behind."""
        with suppress(Exception):
            self._kill()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and see to it."""
        self._up_thread.join(timeout)
        self.kill()
        return 0

    def _down(self, pipe: int, write: Callable[[bytes], object]) -> None:
        with os.fdopen(pipe, "rb", buffering=0) as lines, suppress(Exception):
            while data := lines.read(1 << 20):
                write(data)
            write(b"")

    def _up(self, pipe: int, read: Callable[[], bytes]) -> None:
        with os.fdopen(pipe, "wb", buffering=0) as lines, suppress(Exception):
            while data := read():
                lines.write(data)
