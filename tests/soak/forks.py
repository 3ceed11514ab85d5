"""Runs of pytest in forks of this process, which has imported once what all of them need: a run costs its tests."""

from __future__ import annotations

import atexit
import gc
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from math import ceil
from pathlib import Path
from typing import Generic, TypeVar

import pytest
from hypothesis import Phase, settings

J = TypeVar("J")
BROKE = 99
"""The exit code of a fork that broke before its work was done."""


@dataclass(frozen=True)
class Job(Generic[J]):
    """What a fork does: its exit code is that of `work`, its output goes to a file."""

    name: J
    work: Callable[[], int]
    out: Path
    cpu_s: float
    wall_s: float


@dataclass(frozen=True)
class Ended:
    """How a fork ended; `code` is None where it took too long, and negative where a signal ended it."""

    code: int | None
    cpu_s: float


def import_once(names: Iterable[str]) -> None:
    """Import for all forks; torch keeps to one thread, as threads do not live on in a fork."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in names:
        with suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()


def forked(jobs: Iterable[Job[J]], num: int) -> Iterator[tuple[J, Ended]]:
    """Do the jobs, `num` at a time, and give each as it ends."""
    running: dict[int, tuple[Job[J], float]] = {}
    waiting = iter(jobs)
    try:
        while True:
            while len(running) < num and (job := next(waiting, None)) is not None:
                running[_fork(job)] = job, time.monotonic()
            if not running:
                return
            for pid, (job, since) in list(running.items()):
                if (ended := _ended(pid, time.monotonic() - since > job.wall_s)) is not None:
                    del running[pid]
                    yield job.name, ended
            time.sleep(0.01)
    finally:
        for pid in running:
            _ended(pid, late=True)


def _fork(job: Job[J]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    code = BROKE
    try:
        os.setpgid(0, 0)
        file = os.open(job.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (ceil(job.cpu_s), ceil(job.cpu_s) + 5))
        code = job.work()
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _ended(pid: int, late: bool) -> Ended | None:
    if late:
        _kill(pid)
    found, status, used = os.wait4(pid, 0 if late else os.WNOHANG)
    if found == 0:
        return None
    _kill(pid)
    code = os.waitstatus_to_exitcode(status)
    return Ended(None if late or code == -signal.SIGXCPU else code, used.ru_utime + used.ru_stime)


def _kill(pid: int) -> None:
    """End a fork and what it left running."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


class _Plain:
    """Properties are tried with the same examples in every run, which are not made smaller."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("forks", settings.default, derandomize=True, database=None, phases=phases)
        settings.load_profile("forks")


def run_tests(root: Path, files: Sequence[str], *options: str, plugins: Sequence[object] = ()) -> int:
    """Run pytest in `root` and return its exit code."""
    os.chdir(root)
    without = ["-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options = ("-q", "--tb=line", "--no-header", *without, *options)
    return int(pytest.main([*options, *files], plugins=[_Plain(), *plugins]))
