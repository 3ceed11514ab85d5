"""A process: its cores, and its settings: freed memory is kept, garbage collections are rare, many files may be open.

Freed memory stays with the process, so that the next large tensor costs no page faults. By default glibc asks the
kernel for every large block and returns it at once, and the kernel clears its pages anew each time: a third and more
of a training step of a convolutional network. The names are those of mallopt(3). Other allocators and other systems
are left unchanged.
"""

from __future__ import annotations

import atexit
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
from typing import IO, Any, NoReturn, Protocol

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


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_freed() -> None:
    """Keep all memory that is freed from now on in the process. Threads that exist already are not affected."""
    _set(_KEEPING)


@contextmanager
def freed_kept() -> Iterator[None]:
    """Keep all freed memory inside the context, and return the free memory to the system at its end."""
    keep_freed()
    try:
        yield
    finally:
        _set(_USUAL)
        if _libc() is not None:
            _libc().malloc_trim(0)


@contextmanager
def few_collections(objects: int = 500_000) -> Iterator[None]:
    """Make garbage collections rare inside the context: one per `objects` new objects, hardly any of old objects.

    For code that makes many objects, of which few are in reference cycles.
    """
    before = gc.get_threshold()
    gc.set_threshold(objects, 10, 1000)
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
    """Return the C library if it is glibc, else None."""
    try:
        libc = ctypes.CDLL(None)
        return libc if hasattr(libc, "gnu_get_libc_version") and hasattr(libc, "mallopt") else None
    except (OSError, TypeError):
        return None


def allow_open_files() -> int:
    """Raise this process's limit of open files to the highest one allowed; return the limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


class Child(Protocol):
    """A child process, or a local stand-in for a process on another machine."""

    stdin: IO[Any] | None

    def kill(self) -> None:
        """Kill the process."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process. Raises subprocess.TimeoutExpired."""


def end_child(child: Child, grace_s: float = 2) -> None:
    """End a child process by closing its standard input; kill it if it has not ended within `grace_s` seconds."""
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
    """Ask the Linux kernel to kill this process with signal `by` when its parent dies.

    With 0 the request is withdrawn.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by)


def die_with_parent(parent: int) -> None:
    """End this process when the process `parent`, which started it, dies, or if it has died already."""
    follow_parent()
    if sys.platform == "linux" and os.getppid() != parent:
        os._exit(1)


def leave() -> NoReturn:
    """Run the exit handlers, then end this process without freeing its objects one by one.

    At a usual exit, an extension module that counts its objects (DuckDB's) would print that those that `gc.freeze`
    holds have leaked.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
