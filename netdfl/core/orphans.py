"""No orphans: a process that another one started ends with it, whatever ends that one."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def follow_parent(by: int = signal.SIGKILL) -> None:
    """Ask the kernel to kill this process when its parent dies (Linux), even before it reads its input; 0: no more."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by)


def die_with_parent(parent: int) -> None:
    """Follow the process `parent`, which started this one, also where it died before this was asked."""
    follow_parent()
    if sys.platform == "linux" and os.getppid() != parent:
        os._exit(1)
