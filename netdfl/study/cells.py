"""Runs the cells of a grid, each as `netdfl run` would in a process of its own, several at a time; finished ones stay.

The processes are forked from one that has imported everything, so a cell costs what it computes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdfl.core.errors import InputError, NetdflError
from netdfl.scenario.load import load
from netdfl.scenario.resolved import scenario_hash
from netdfl.study.plan import Cell

UNUSABLE, BROKE = 2, 4


@dataclass(frozen=True)
class Ran:
    """A cell that has run: where it lies, how it exited, its result (None where it left none), what it said."""

    cell: Cell
    path: Path
    exit_code: int
    result: dict[str, Any] | None
    text: str = ""

    @property
    def failed(self) -> bool:
        """Whether it left nothing to count: it could not be run, or broke."""
        return self.result is None or self.exit_code in (UNUSABLE, BROKE)


@dataclass(frozen=True)
class _Job:
    cell: Cell
    path: Path


def run_cells(
    scenario: Path, cells: Sequence[Cell], folder: Path, *, jobs: int, done: Callable[[Ran], None]
) -> list[Ran]:
    """Run every cell that is not finished yet, `jobs` at a time; tell `done` of each. In the order of `cells`."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[Cell, Ran] = {}

    def take(ran: Ran) -> None:
        found[ran.cell] = ran
        done(ran)

    waiting: list[_Job] = []
    for cell in cells:
        try:
            name = scenario_hash(load(scenario, cell.sets))[:16]
        except InputError as error:
            take(Ran(cell, folder, UNUSABLE, None, str(error)))
            continue
        job = _Job(cell, folder / name)
        ran = _finished(job)
        take(ran) if ran is not None else waiting.append(job)
    if waiting:
        _preload()
    _run_all(scenario, waiting, jobs, take)
    return [found[cell] for cell in cells]


def _run_all(scenario: Path, waiting: list[_Job], jobs: int, take: Callable[[Ran], None]) -> None:
    running: dict[int, _Job] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                job = waiting.pop(0)
                running[_fork(scenario, job)] = job
            pid, status = os.waitpid(-1, 0)
            ended = running.pop(pid, None)
            if ended is not None:
                code = os.waitstatus_to_exitcode(status)
                _path(ended, "exit").write_text(f"{code}\n", encoding="utf-8")
                take(_finished(ended) or Ran(ended.cell, ended.path, code, None, _log(ended)))
    finally:
        for pid in running:
            os.kill(pid, 15)
            os.waitpid(pid, 0)


def _fork(scenario: Path, job: _Job) -> int:
    if job.path.exists():
        shutil.rmtree(job.path)  # half a run
    pid = os.fork()
    if pid:
        return pid
    code = BROKE
    try:
        log = os.open(_path(job, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from netdfl.fleet.run import run

        code = int(run(load(scenario, job.cell.sets), out=job.path, page=False).exit_code)
    except NetdflError as error:
        print(error, file=sys.stderr)
        code = UNUSABLE if isinstance(error, InputError) else BROKE
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _finished(job: _Job) -> Ran | None:
    try:
        result = json.loads((job.path / "result.json").read_text(encoding="utf-8"))
        code = int(_path(job, "exit").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Ran(job.cell, job.path, code, result) if code in (0, 1, 3) else None


def _path(job: _Job, kind: str) -> Path:
    return job.path.with_name(f"{job.path.name}.{kind}")


def _log(job: _Job) -> str:
    try:
        lines = _path(job, "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def _preload() -> None:
    import torch

    import netdfl.fleet.run
    import netdfl.fleet.simulated  # noqa: F401

    torch.set_num_threads(1)
