"""One process at a time writes a run directory: whoever does holds a lock, which ends with the process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import open_append, writing

LOCK = ".lock"


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold the run directory `path`. The system lets go of it when this process ends, however it ends.

    Raises:
        InputError: another process holds it: its run is still going on.
        RunError: the disk refuses it.
    """
    with writing(path / LOCK, RunError):
        file = os.fdopen(open_append(path / LOCK), "a")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"{path}: this run is still going on; wait until it ends, or stop it first") from error
        yield


def is_held(path: Path) -> bool:
    """Whether some process of this machine holds the run directory `path`: its run is still going on."""
    try:
        fd = os.open(path / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
