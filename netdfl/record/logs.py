"""The printed output of a run's node processes, from its folder `logs`: read as a whole, or while it is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from netdfl.core.errors import InputError
from netdfl.core.files import read_end, read_from

_NAME = re.compile(r"(?P<first>\d{3,})(?:-(?P<second>\d{3,}))?(?:-(?P<life>\d{1,2}))?\.log")
PIECE = 1 << 20
"""The most bytes that are read of a log at a time; a longer line is split into several."""


class LogLine(NamedTuple):
    """A line of a log, and its source `whose`: `node 3`, `nodes from 3` (a process of several nodes) or `evaluator`."""

    whose: str
    text: str


class NodeLogs:
    """A reader of a run's logs, or of one node's logs, that continues where it stopped reading last."""

    def __init__(self, run: Path, node: int | None = None) -> None:
        """Prepare to read the logs of the run at `run`, or only node `node`'s; there may be none yet."""
        self._folder, self._node = run / "logs", node
        self._read: dict[Path, int] = {}
        self._begun: dict[Path, bytes] = {}

    @property
    def are_there(self) -> bool:
        """Whether the run has any log file to read."""
        return bool(self._files())

    def new(self, *, last: bool = False) -> Iterator[LogLine]:
        """Yield the lines added since the last call; with `last`, also a line that is not finished."""
        for path in self._files():
            while added := self._added(path):
                *lines, begun = (self._begun.get(path, b"") + added).split(b"\n")
                if len(begun) > PIECE:
                    lines, begun = [*lines, begun[:PIECE]], begun[PIECE:]
                self._begun[path] = begun
                for line in lines:
                    yield LogLine(_whose(path), _printable(line))
            if last and (rest := self._begun.pop(path, b"")):
                yield LogLine(_whose(path), _printable(rest))

    def last(self, most_lines: int, most_bytes: int, most_letters: int) -> list[LogLine]:
        """Return the last `most_lines` lines of all logs, but no more than are in their last `most_bytes` bytes.

        Only these bytes are read. Each line is cut after `most_letters` letters.
        """
        found: list[LogLine] = []
        for path in reversed(self._files()):
            with suppress(FileNotFoundError, InputError):
                if end := read_end(path, most_bytes):
                    most_bytes -= len(end)
                    lines = end.removesuffix(b"\n").rsplit(b"\n", most_lines)[-most_lines:]
                    most_lines -= len(lines)
                    cut = (_printable(line[: 4 * most_letters])[:most_letters] for line in reversed(lines))
                    found.extend(LogLine(_whose(path), text) for text in cut)
            if not most_lines or not most_bytes:
                break
        return found[::-1]

    def _files(self) -> list[Path]:
        found = sorted(self._folder.glob("*.log"))
        if self._node is None:
            return found
        named = [(path, int(name["first"]), name["second"]) for path in found if (name := _NAME.fullmatch(path.name))]
        nearest = max((first for _, first, _ in named if first <= self._node), default=None)
        return [path for path, first, shared in named if first == nearest and (first == self._node or shared)]

    def _added(self, path: Path) -> bytes:
        """Return the bytes added to a plain file; none for a symbolic link, a device, or a file that is gone."""
        start = self._read.get(path, 0)
        try:
            added = read_from(path, start, PIECE)
        except (FileNotFoundError, InputError):
            return b""
        self._read[path] = start + len(added)
        return added


def follow(logs: NodeLogs, goes_on: Callable[[], bool], wait: Callable[[], None]) -> Iterator[LogLine]:
    """Yield lines as they are added, until the run has ended and all lines were read."""
    while True:
        over = not goes_on()  # asked first: what is written before the end is read after it
        found = False
        for line in logs.new():
            found = True
            yield line
        if over and not found:
            yield from logs.new(last=True)
            return
        if not found:
            wait()


def _whose(path: Path) -> str:
    named = _NAME.fullmatch(path.name)
    if named is None:
        return path.stem
    life = f", life {named['life']}" if named["life"] else ""
    return f"nodes from {int(named['first'])}{life}" if named["second"] else f"node {int(named['first'])}{life}"


def _printable(line: bytes) -> str:
    """Return a line as text without characters that control a terminal."""
    return line.decode("utf-8", "replace").translate(_PRINTABLE)


class _Printable(dict[int, str]):
    def __missing__(self, letter: int) -> str:
        text = chr(letter)
        return text if text.isprintable() or text == "\t" else "?"


_PRINTABLE = _Printable()
