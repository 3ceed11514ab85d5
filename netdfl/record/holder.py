"""The process that holds the lock of an unfinished run, and the request to it to stop."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from netdfl.record.directory import LOCK

LOCKS = Path("/proc/locks")


def find_holder(run: Path) -> int | None:
    """Return the id of the process that holds the run's lock; None if none does, or if the system can't tell."""
    return holder_of(run / LOCK)


def holder_of(lock: Path) -> int | None:
    """Return the id of the process that holds the lock file `lock`; None if none does, or if the system can't tell.

    The id comes from the system's own table, never from a file of a run, so that no run directory can name a process.
    """
    try:
        found = os.stat(lock, follow_symlinks=False)
        lines = LOCKS.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in lines:
        parts = line.split()
        if len(parts) >= 6 and parts[1:2] == ["FLOCK"] and parts[3] == "WRITE" and parts[5] == place:
            pid = int(parts[4])
            return pid if pid > 1 and pid != os.getpid() else None
    return None


def ask_to_stop(run: Path) -> bool:
    """Interrupt a run like Ctrl-C, so that it ends in good order; return whether there was a process to interrupt."""
    pid = find_holder(run)
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGINT)
    except OSError:
        return False
    return True
