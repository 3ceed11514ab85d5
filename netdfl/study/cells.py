"""Runs the cells of a grid, each as `netdfl run` would in its own process, several at a time; finished ones stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdfl.core.errors import InputError
from netdfl.scenario.load import load
from netdfl.scenario.resolved import scenario_hash
from netdfl.study.forks import BROKE, UNUSABLE, path_beside
from netdfl.study.plan import Cell


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
        _run_all(scenario, waiting, jobs, take)
    return [found[cell] for cell in cells]


def _run_all(scenario: Path, waiting: Sequence[_Job], jobs: int, take: Callable[[Ran], None]) -> None:
    """Have a process of its own fork the cells: a process that has used grpc, or has threads, must not."""
    by_path = {str(job.path): job for job in waiting}
    order = {"scenario": str(scenario), "jobs": jobs, "cells": [[path, job.cell.sets] for path, job in by_path.items()]}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-m", "netdfl.study.forks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as forks:
        assert forks.stdin is not None
        assert forks.stdout is not None
        try:
            forks.stdin.write(json.dumps(order).encode())
            forks.stdin.close()
            for line in forks.stdout:
                path, code = json.loads(line)
                ended = by_path.pop(path)
                path_beside(ended.path, "exit").write_text(f"{code}\n", encoding="utf-8")
                take(_finished(ended) or Ran(ended.cell, ended.path, code, None, _log(ended)))
        finally:
            forks.terminate()
    for job in by_path.values():
        take(Ran(job.cell, job.path, BROKE, None, f"the process that runs the cells ended with {forks.returncode}"))


def _finished(job: _Job) -> Ran | None:
    try:
        result = json.loads((job.path / "result.json").read_text(encoding="utf-8"))
        code = int(path_beside(job.path, "exit").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Ran(job.cell, job.path, code, result) if code in (0, 1, 3) else None


def _log(job: _Job) -> str:
    try:
        lines = path_beside(job.path, "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
