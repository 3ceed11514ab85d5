"""Output streams that survive their reader, so that a run finishes even if `| head -1` or a terminal is gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TextIO, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class LastingStream:
    """A text stream that discards its output once its reader is gone."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream` as long as it has a reader."""
        self._stream = stream

    def write(self, text: str) -> int:
        """Write `text`. Returns the number of its characters."""
        try:
            return self._stream.write(text)
        except OSError:
            self._leave()
            return len(text)

    def writelines(self, lines: Any) -> None:
        """Write each of `lines`."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write the buffered text."""
        try:
            self._stream.flush()
        except OSError:
            self._leave()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _leave(self) -> None:
        """Point the stream's file descriptor at the null device, so that later writes do not fail."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


@contextmanager
def lasting_output() -> Iterator[None]:
    """Let standard output and error discard text inside the context, once their readers are gone."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (LastingStream(stream) for stream in before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


def outliving_its_reader(command: Callable[P, R]) -> Callable[P, R]:
    """Return a function that calls `command`, and ends normally even if nobody reads the output any more."""

    @wraps(command)
    def lasting(*args: P.args, **kwargs: P.kwargs) -> R:
        with lasting_output():
            return command(*args, **kwargs)

    return lasting
