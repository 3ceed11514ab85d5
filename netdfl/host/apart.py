"""Clock and files of a node that shares neither a disk nor a clock with its supervisor.

The node's files travel in chunks over the control plane, beside the training, one chunk at a time. The node asks
several times for the time of the supervisor's clock; the answer with the shortest round trip has the smallest error.
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
"""Questions for the supervisor's time with this number or a higher one serve as receipts for files.

Their answers show that the files that were sent before have arrived.
"""
GROWING = ("store", "logs")
"""Folders of a run directory whose files are only appended to."""


class ClockOffset:
    """The offset between the supervisor's monotonic clock and this machine's, estimated from questions and answers.

    It does no I/O itself.
    """

    def __init__(self, ask: Callable[[Report], None], monotonic_ns: Callable[[], int]) -> None:
        """Prepare to ask for the supervisor's time by `ask`, after `begin`; `monotonic_ns` reads the node's clock."""
        self._ask, self._monotonic_ns = ask, monotonic_ns
        self._asked_ns: list[int] = []
        self._best: tuple[int, int] | None = None

    @property
    def known(self) -> bool:
        """Whether enough answers have come to estimate the offset."""
        return len(self._asked_ns) > ASKS

    @property
    def ahead_ns(self) -> int:
        """Nanoseconds by which the other clock is ahead; the error is at most half of the fastest round trip."""
        assert self._best is not None
        return self._best[1]

    def begin(self) -> None:
        """Ask for the other clock's time for the first time."""
        self._asked_ns.append(self._monotonic_ns())
        self._ask(AskClock(0))

    def told(self, reading: ClockReading) -> None:
        """Process the answer `reading` of the other clock, and ask again if needed; ignore an answer to no question."""
        if self.known or reading.number != len(self._asked_ns) - 1:
            return
        now, asked = self._monotonic_ns(), self._asked_ns[-1]
        found = (now - asked, reading.at_ns - (asked + now) // 2)
        self._best = found if self._best is None else min(self._best, found)
        self._asked_ns.append(now)
        if not self.known:
            self._ask(AskClock(len(self._asked_ns) - 1))


class ReportStream(Protocol):
    """A stream to the supervisor that carries a node's reports and parts of its files."""

    def report(self, report: Report) -> None:
        """Queue a report, to be sent to the supervisor."""
        ...

    async def flushed(self) -> None:
        """Return once all queued reports have been sent."""
        ...


class FileUpload:
    """The upload of a node's files to the supervisor."""

    def __init__(self, directory: Path, node: NodeId, stream: ReportStream) -> None:
        """Send the files of `node` below `directory` over `stream`; other nodes may write there too."""
        self._directory, self._node, self._stream = directory, node, stream
        self._shipped: dict[Path, int] = {}
        self._lock = asyncio.Lock()
        self._arrived: dict[int, asyncio.Event] = {}

    async def surely(self, path: Path) -> None:
        """Send the complete file at `path`, and return once the supervisor has written the file to disk.

        The supervisor handles reports in order. So a question for the supervisor's time follows the last part of the
        file, and the answer to that question is a receipt.
        """
        await self.whole(path)
        number = RECEIPTS + len(self._arrived)
        self._arrived[number] = asyncio.Event()
        self._stream.report(AskClock(number))
        await self._arrived[number].wait()

    def told(self, reading: ClockReading) -> None:
        """Process a `reading` of the supervisor's clock, which may be the receipt that `surely` waits for."""
        if reading.number in self._arrived:
            self._arrived[reading.number].set()

    async def whole(self, path: Path) -> None:
        """Send the complete file at `path` to the supervisor."""
        await self._ship(path, 0, grows=False)

    async def grown(self) -> None:
        """Send the supervisor the data that were appended to growing files since the last call."""
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
