"""The locks of a study's results: one command makes its runs, and one process at a time writes its tables.

Both lie beside the study's plan. The system releases them when their process ends in any way.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import OTHER_OUT, open_append, writing
from netdfl.record.directory import is_locked, take_lock
from netdfl.record.holder import holder_of

TABLES = "studies"
"""The folder, beside the published tables, in which their plans are stored."""


@contextmanager
def alone(plan: Path) -> Iterator[None]:
    """Hold the lock of the study whose plan is the file `plan`, in a folder that is made if there is none.

    Raises InputError if another command makes the study's runs, or if its folder can't be made.
    """
    new, lock = not plan.parent.exists(), _lock_of(plan)
    with writing(plan.parent, more=OTHER_OUT):
        plan.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _open(lock) as descriptor:
            if not take_lock(descriptor):
                raise InputError(_told(plan, lock))
            yield
    except InputError:
        if new and [each.name for each in plan.parent.iterdir()] == [lock.name]:
            lock.unlink()
            with suppress(OSError):
                plan.parent.rmdir()
        raise


def is_under_way(plan: Path) -> bool:
    """Return whether a command on this machine makes the runs of the study whose plan is the file `plan`."""
    return is_locked(_lock_of(plan))


@contextmanager
def writing_tables(plan: Path) -> Iterator[None]:
    """Wait for the lock of a study's tables, then hold it inside the `with` block; `plan` is the study's plan file.

    A study's command and `netdfl study` write the same files, and tables of fewer runs must not replace later ones.
    """
    with _open(plan.with_name(f".{plan.stem}.tables")) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _lock_of(plan: Path) -> Path:
    return plan.with_name(f".{plan.stem}.lock")


@contextmanager
def _open(file: Path) -> Iterator[int]:
    with writing(file, RunError, OTHER_OUT):
        descriptor = open_append(file)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _told(plan: Path, lock: Path) -> str:
    holder, folder = holder_of(lock), plan.parent.parent if plan.parent.name == TABLES else plan.parent
    who = "another command" if holder is None else f"another command, process {holder},"
    return (
        f"{who} makes these runs in {folder} now: `netdfl study {folder}` says how far it is; wait until it ends, or "
        "give --out another folder"
    )
