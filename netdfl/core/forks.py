"""Processes forked from this one, which do one kind of work on many tasks with the objects made before the fork."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from netdfl.core.errors import RunError

_work: Callable[..., Any] | None = None
"""The work of this process, if it was forked by `forked`."""


@contextmanager
def forked(work: Callable[..., Any], jobs: int, died: str) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of `jobs` processes in which `do_work` calls `work`; only this process handles Ctrl-C.

    The work itself is inherited, so that only arguments and results are pickled. Raises RunError with the text `died`
    if one of the processes dies.
    """
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), _begin, (work,))
    try:
        yield pool
    except BrokenProcessPool as error:
        raise RunError(died) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(work: Callable[..., Any]) -> None:
    global _work
    _work = work
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)


def do_work(*task: Any) -> Any:
    """Do the work of this forked process on one task, and return its result."""
    assert _work is not None
    return _work(*task)
