"""What a process asks of its system: freed memory, few collections, many open files, an end with its parent.

Freed memory stays with the process, so that the next large tensor costs no page faults. By default glibc asks the
kernel for every large block and gives it back at once, and the kernel clears the pages anew each time: of a training
step of a convolutional network that is a third and more. The names are those of mallopt(3). Other allocators and other
systems are left as they are.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import IO, Any, Protocol

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -3, -4, -8
_KEEPING = {
    _M_MMAP_MAX: 0,
    _M_TRIM_THRESHOLD: -1,
    _M_TOP_PAD: 64 * 2**20,
    # A thread's own arena is made of pieces of 64 MB, and its larger blocks come from the kernel after all.
    _M_ARENA_MAX: 1,
}
_USUAL = {
    _M_MMAP_MAX: 65536,
    _M_TOP_PAD: 128 * 2**10,
    _M_ARENA_MAX: 0,
    # What glibc arrives at by itself once a block of 32 MB has been freed; it adapts no more after mallopt.
    _M_MMAP_THRESHOLD: 32 * 2**20,
    _M_TRIM_THRESHOLD: 64 * 2**20,
}


def keep_freed() -> None:
    """Give no memory back from now on. Threads that have begun keep their arenas."""
    _set(_KEEPING)


@contextmanager
def freed_kept() -> Iterator[None]:
    """Give no memory back inside, and all that is free at the end."""
    keep_freed()
    try:
        yield
    finally:
        _set(_USUAL)
        if _libc() is not None:
            _libc().malloc_trim(0)


@contextmanager
def few_collections(objects: int = 500_000) -> Iterator[None]:
    """Let the garbage collector look at what is new once that is so many `objects`, of which few are in cycles.

    It hardly ever looks through what was there before.
    """
    before = gc.get_threshold()
    gc.set_threshold(objects, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _set(options: dict[int, int]) -> None:
    if (libc := _libc()) is not None:
        for option, value in options.items():
            libc.mallopt(option, value)


@cache
def _libc() -> Any:
    """The C library where it is glibc, else None."""
    try:
        libc = ctypes.CDLL(None)
        return libc if hasattr(libc, "gnu_get_libc_version") and hasattr(libc, "mallopt") else None
    except (OSError, TypeError):
        return None


def allow_open_files() -> int:
    """Let this process, and those that it starts, open as many files as its user may; how many that is."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


class Child(Protocol):
    """A process that this one started, or what stands for one that lives elsewhere."""

    stdin: IO[Any] | None

    def kill(self) -> None:
        """End it."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""


def end_child(child: Child, grace_s: float = 2) -> None:
    """Tell a child by the end of its input to end, and kill it where it has not within the grace."""
    if child.stdin is not None:
        with suppress(BrokenPipeError):  # it is dead, and what it did not read is lost
            child.stdin.close()
    try:
        child.wait(grace_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


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
