"""What a node does that shares neither a disk nor a clock with its supervisor.

Its files travel in chunks over the control plane, beside the training: never more is on its way than one chunk. The
supervisor's clock is asked for a few times, and the fastest answer is the truest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from netdfl.core.control import AskClock, ClockReading, FilePart, Report
from netdfl.core.files import is_of_node
from netdfl.core.types import NodeId

ASKS = 8
CHUNK_BYTES = 256 * 1024
RECEIPTS = 1 << 20
"""Numbers from here on ask for no time, but whether a file has arrived."""
GROWING = ("store", "logs")
"""Folders of a run directory whose files are only added to."""


class ClockOffset:
    """How far another monotonic clock is ahead of this machine's. Sans-I/O: it asks by a report, and is told."""

    def __init__(self, ask: Callable[[Report], None], monotonic_ns: Callable[[], int]) -> None:
        """Ask by `ask`, once begun; `monotonic_ns` reads the clock of this machine."""
        self._ask, self._monotonic_ns = ask, monotonic_ns
        self._asked_ns: list[int] = []
        self._best: tuple[int, int] | None = None

    @property
    def known(self) -> bool:
        """Whether it was asked often enough."""
        return len(self._asked_ns) > ASKS

    @property
    def ahead_ns(self) -> int:
        """By how much the other clock is ahead; wrong by at most half of what the fastest answer took."""
        assert self._best is not None
        return self._best[1]

    def begin(self) -> None:
        """Ask for the first time."""
        self._asked_ns.append(self._monotonic_ns())
        self._ask(AskClock(0))

    def told(self, reading: ClockReading) -> None:
        """Take an answer; ask again where that is not enough. An answer to no open question tells nothing."""
        if self.known or reading.number != len(self._asked_ns) - 1:
            return
        now, asked = self._monotonic_ns(), self._asked_ns[-1]
        found = (now - asked, reading.at_ns - (asked + now) // 2)
        self._best = found if self._best is None else min(self._best, found)
        self._asked_ns.append(now)
        if not self.known:
            self._ask(AskClock(len(self._asked_ns) - 1))


class Stream(Protocol):
    """What carries reports, and files in parts."""

    def report(self, report: Report) -> None:
        """Take a report."""
        ...

    async def flushed(self) -> None:
        """Return once what was reported so far is on its way: more would only wait here."""
        ...


class Shipping:
    """Takes the files of a node to the supervisor."""

    def __init__(self, directory: Path, node: NodeId, stream: Stream) -> None:
        """Ship over `stream` what `node` writes below `directory`, where other nodes of its machine write too."""
        self._directory, self._node, self._stream = directory, node, stream
        self._shipped: dict[Path, int] = {}
        self._lock = asyncio.Lock()
        self._arrived: dict[int, asyncio.Event] = {}

    async def surely(self, path: Path) -> None:
        """Ship the file at `path`, which is complete, and return once the supervisor has written it down.

        It answers in order: what its clock says, asked for after the last part, says that too.
        """
        await self.whole(path)
        number = RECEIPTS + len(self._arrived)
        self._arrived[number] = asyncio.Event()
        self._stream.report(AskClock(number))
        await self._arrived[number].wait()

    def told(self, reading: ClockReading) -> None:
        """Take an answer, if it is one to `surely`."""
        if reading.number in self._arrived:
            self._arrived[reading.number].set()

    async def whole(self, path: Path) -> None:
        """Ship the file at `path`, which is complete."""
        await self._ship(path, 0, grows=False)

    async def grown(self) -> None:
        """Ship what was added to the files that grow."""
        async with self._lock:
            for folder in GROWING:
                for path in sorted((self._directory / folder).glob(f"*{self._node:03d}*")):
                    if not is_of_node(path.name, self._node):
                        continue
                    self._shipped[path] = await self._ship(path, self._shipped.get(path, 0), grows=True)

    async def _ship(self, path: Path, offset: int, *, grows: bool) -> int:
        name = path.relative_to(self._directory).as_posix()
        with path.open("rb") as file:
            file.seek(offset)
            while data := file.read(CHUNK_BYTES):
                self._stream.report(FilePart(name, offset, data, grows))
                offset += len(data)
                await self._stream.flushed()
        if not grows:
            self._stream.report(FilePart(name, offset, b"", grows, last=True))
        return offset
