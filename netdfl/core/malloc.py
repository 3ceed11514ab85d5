"""Freed memory stays with the process, so that the next large tensor costs no page faults.

By default glibc asks the kernel for every large block and gives it back at once, and the kernel clears the pages
anew each time: of a training step of a convolutional network that is a third and more. The names are those of
mallopt(3). Other allocators and other systems are left as they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

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
