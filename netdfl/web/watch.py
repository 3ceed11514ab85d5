"""Updates about a run, sent as often as a small share of a processor permits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from pydantic_core import to_json

from netdfl.core.errors import NetdflError
from netdfl.core.files import read_end
from netdfl.record.directory import is_held
from netdfl.record.forms import FLEET, read_form
from netdfl.record.holder import find_holder
from netdfl.record.logs import LogLine, NodeLogs
from netdfl.record.run import open_run
from netdfl.report.data import page_data

TICK_S = 1.0
SHARE = 0.1
"""The largest share of one processor that reading an unfinished run may take, while a page of it is open.

Reading a minute of sixteen nodes takes a third of a second. With a share of 0.01, the page was updated only every half
minute.
"""
LEAST_S = 2.0
MOST_WAITING = 8
"""The most updates that are queued for a page that does not read them.

A further one replaces all of them by one update with all data.
"""
Event: TypeAlias = bytes
"""One server-sent event."""


def event(name: str, data: bytes) -> Event:
    """Return a server-sent event in the form that browsers read."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


class RunFeed:
    """The updates of one run for its open pages. The run is read once for all pages, and only while a page is open."""

    def __init__(self, path: Path) -> None:
        """Prepare to watch the run at `path`, which is first read when a page asks."""
        self._path = path
        self._parts: dict[str, bytes] = {}
        self._status: bytes | None = None
        self._trouble: bytes | None = None
        self._over = False
        self._seen: object = None
        self._pages: set[asyncio.Queue[Event | None]] = set()
        self._reading: asyncio.Task[None] | None = None

    async def events(self) -> AsyncIterator[Event]:
        """Yield all known data, then updates, until the run has ended and all data were sent."""
        if self._over and await asyncio.to_thread(_sizes, self._path) != self._seen:
            self._over = False  # a command about ended runs has left something for the page
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._put_known(queue)
        if self._over and self._parts:
            queue.put_nowait(None)
        self._pages.add(queue)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
        try:
            while (sent := await queue.get()) is not None:
                yield sent
            yield event("end", b"null")
        finally:
            self._pages.discard(queue)

    async def _read(self) -> None:
        again = 0.0
        while self._pages and not self._over:
            going_on = await asyncio.to_thread(is_held, self._path)
            if going_on:
                await self._tell_status()
            if not going_on or time.monotonic() >= again:
                began = time.process_time()
                await self._tell_data()
                again = time.monotonic() + max(LEAST_S, (time.process_time() - began) / SHARE)
            if not going_on:
                self._over = True
                self._say(None)
                return
            await asyncio.sleep(TICK_S)

    async def _tell_status(self) -> None:
        text = await asyncio.to_thread(_status, self._path)
        if text is not None and text != self._status:
            self._status = text
            self._say(event("status", text))

    async def _tell_data(self) -> None:
        """Send all open pages the data that changed since the last time; for an unreadable run, the reason."""
        seen = await asyncio.to_thread(_sizes, self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            parts = await asyncio.to_thread(_parts, self._path)
        except NetdflError as error:
            self._trouble = event("trouble", to_json(str(error)))
            self._say(self._trouble)
            return
        new = {name: text for name, text in parts.items() if self._parts.get(name) != text}
        first, self._parts = not self._parts, parts
        if new:
            self._say(self._whole() if first else _joined(new, part=True))

    def _whole(self) -> Event:
        return _joined(self._parts, part=False)

    def _say(self, what: Event | None) -> None:
        for queue in self._pages:
            if queue.qsize() < MOST_WAITING:
                queue.put_nowait(what)
                continue
            while not queue.empty():
                queue.get_nowait()
            self._put_known(queue)  # `what` is part of it, unless it is the end
            if what is None:
                queue.put_nowait(None)

    def _put_known(self, queue: asyncio.Queue[Event | None]) -> None:
        for known in (self._status and event("status", self._status), self._parts and self._whole(), self._trouble):
            if known:
                queue.put_nowait(known)


def _status(path: Path) -> bytes | None:
    with suppress(NetdflError, ValueError):
        found = read_form(path / "fleet.json", FLEET)
        if found is not None:
            return to_json({**found, "can_stop": find_holder(path) is not None}, inf_nan_mode="null")
    return None


def _parts(path: Path) -> dict[str, bytes]:
    return {name: to_json(part, inf_nan_mode="null") for name, part in page_data(open_run(path), tolerant=True).items()}


def _joined(parts: dict[str, bytes], *, part: bool) -> Event:
    inside = b",".join(b'"' + name.encode() + b'":' + text for name, text in parts.items())
    return event("data", b"{" + inside + (b',"part":true}' if part else b"}"))


def _sizes(path: Path) -> object:
    """Return a value that changes whenever the run's files change."""
    found = []
    for file in sorted((*path.glob("*"), *path.glob("store/*"), *path.glob("stalls/*"))):
        with suppress(OSError):
            if file.name not in ("fleet.json", "report.html"):
                state = file.lstat()
                found.append((file.name, state.st_size, state.st_mtime_ns))
    return sha256(repr(found).encode()).digest()


MOST_LOG = 1 << 16
MOST_LINES = 20_000
MOST_LETTERS = 2000
"""The most letters of each line of a log that a page receives; of all logs it receives `MOST_LINES` lines."""
MOST_READ = 1 << 24
"""The most bytes of all logs that are read for a page."""


def log_tail(run: Path, node: int) -> str | None:
    """Return the end of a node's log; None if there is no log. Raises InputError if the log is no plain file."""
    try:
        return read_end(run / "logs" / f"{node:03d}.log", MOST_LOG).decode("utf-8", "replace")
    except FileNotFoundError:
        return None


def last_lines(run: Path) -> list[LogLine]:
    """Return the last lines of the logs of all nodes, each as the name of its node and the text."""
    return NodeLogs(run).last(MOST_LINES, MOST_READ, MOST_LETTERS)
