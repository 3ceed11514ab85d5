"""The recognition of out-of-memory errors from any library."""

from __future__ import annotations

import errno
from collections.abc import Iterator

WORDS = ("allocate memory", "bad_alloc", "out of memory", "start new thread", "failed to map")
"""Phrases of C and C++ libraries for a lack of memory, in errors other than MemoryError."""


def is_of_memory(error: BaseException) -> bool:
    """Return whether `error`, or an error that caused it, means that memory ran out."""
    return any(_is_one(each) for each in _all(error, set()))


def lack_of_memory(error: BaseException) -> str:
    """Return the class and the first line of the out-of-memory error among `error` and the errors that caused it.

    `is_of_memory` must be true for `error`.
    """
    found = next(each for each in _all(error, set()) if _is_one(each))
    said = str(found).strip().partition("\n")[0]
    return f"{type(found).__name__}: {said}" if said else type(found).__name__


def _is_one(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, Exception) and any(word in str(error).lower() for word in WORDS)


def _all(error: BaseException | None, seen: set[int]) -> Iterator[BaseException]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    yield from _all(error.__cause__, seen)
    yield from _all(error.__context__, seen)
    for each in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        yield from _all(each, seen)
