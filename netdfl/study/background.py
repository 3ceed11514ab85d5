"""The lock of background work (`netdfl claims run`): one process per user and machine, which others can find and stop.

Benchmarks and the whole test suite stop the work first, as it would disturb their measurements.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import open_append, writing

PATIENCE_S = 30.0
"""The time in s that background work gets to end its runs when it is stopped."""
_LOOK_S = 0.05


def lock_file() -> Path:
    """Return the path of the lock file of this user's background work on this machine."""
    return Path(tempfile.gettempdir()) / f"netdfl-background-{os.getuid()}.lock"


@contextmanager
def in_background(path: Path | None = None) -> Iterator[None]:
    """Hold the lock of background work inside the context, with this process at the lowest priority.

    The system releases the lock when the process ends.

    Raises:
        InputError: Background work is running already, or another user's file lies there.
        RunError: The disk refuses the lock file.
    """
    path = path or lock_file()
    with writing(path, RunError):
        file = os.fdopen(open_append(path), "a")
    with file:
        if os.fstat(file.fileno()).st_uid != os.getuid():
            raise InputError(f"{path} belongs to another user: remove it, or set TMPDIR")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"{path}: work in the background goes on already; `netdfl claims stop` ends it") from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        os.nice(19)
        yield


def stop_background(path: Path | None = None, patience_s: float = PATIENCE_S) -> bool:
    """Stop the background work of this user; return whether there was any. Its finished runs are kept.

    Raises RunError if the work has not ended after `patience_s` seconds.
    """
    path = path or lock_file()
    pid = _holder(path)
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + patience_s
    while _holder(path) is not None:
        if time.monotonic() > until:
            raise RunError(f"the work in the background, process {pid}, has not ended within {patience_s:g} s")
        time.sleep(_LOOK_S)
    return True


def _holder(path: Path) -> int | None:
    """Return the id of the process that holds the lock of background work; None if no process does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor) as file:
        if os.fstat(descriptor).st_uid != os.getuid():
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = file.read().strip()
            return int(text) if text.isdecimal() else None
        return None
