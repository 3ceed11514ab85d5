"""Ctrl-C and SIGTERM end a study at once: first its runs, then itself, with one sentence on how far it has come."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

INTERRUPTED = 130
GRACE_S = 10.0
"""How long containers may take to leave; all else takes no time."""
SHOW_CURSOR = b"\x1b[?25h"


@dataclass
class StudyProgress:
    """How far a study is, and the process that runs its cells while there is one."""

    finished: int = 0
    total: int = 0
    forks: subprocess.Popen[bytes] | None = None

    @property
    def words(self) -> str:
        """What somebody is told who ends it."""
        far = f"{self.finished} of {self.total} runs are finished" if self.total else "nothing has been run yet"
        return f"interrupted: {far}; repeat the command to go on from there"


@contextmanager
def ended_by_signals() -> Iterator[StudyProgress]:
    """End this process at Ctrl-C and SIGTERM, with exit code 130, when the runs of the study have ended.

    It ends in the handler, wherever it is: an exception would get lost in the middle of an import, or be shown.
    """
    progress = StudyProgress()

    def end(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        if progress.forks is not None:
            end_forks(progress.forks)
        if os.isatty(1):
            os.write(1, SHOW_CURSOR)  # a bar of progress hides it
        os.write(2, f"{progress.words}\n".encode())
        os._exit(INTERRUPTED)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {each: signal.getsignal(each) for each in numbers if signal.getsignal(each) is not signal.SIG_IGN}
    for each in before:
        signal.signal(each, end)
    try:
        yield progress
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def end_forks(forks: subprocess.Popen[bytes]) -> None:
    """End the process that runs the cells, which ends these first; after the grace, all at once."""
    forks.terminate()
    try:
        forks.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(forks.pid, signal.SIGKILL)
        forks.wait()
