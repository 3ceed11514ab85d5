"""Runs cells, each as `netdfl run` would in a process of its own, several at a time; those that have finished stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from netdfl.core.errors import InputError
from netdfl.core.types import Json
from netdfl.scenario.load import load
from netdfl.scenario.loading.resolved import scenario_hash
from netdfl.study.forks import BROKE, FINISHED, UNUSABLE, path_beside
from netdfl.study.interrupt import StudyProgress, end_forks
from netdfl.study.plan import Cell


@dataclass(frozen=True)
class Ran:
    """A cell that has run: where it lies, how it exited, its result (None where it left none), what it said."""

    cell: Cell
    path: Path
    exit_code: int
    result: Json | None
    text: str = ""

    @property
    def failed(self) -> bool:
        """Whether it left nothing to count: it could not be run, or broke."""
        return self.result is None or self.exit_code in (UNUSABLE, BROKE)


@dataclass(frozen=True)
class CellJob:
    """A cell that has to run: of which scenario file, in which world, and where its run goes."""

    scenario: Path
    cell: Cell
    path: Path
    world: str


def look(scenario: Path, cells: Sequence[Cell], folder: Path) -> tuple[list[Ran], list[CellJob]]:
    """The cells that have run, or can't be, and those that have to."""
    found: list[Ran] = []
    waiting: list[CellJob] = []
    for cell in cells:
        try:
            loaded = load(scenario, cell.sets)
        except InputError as error:
            found.append(Ran(cell, folder, UNUSABLE, None, str(error)))
            continue
        path = folder / scenario_hash(loaded)[:16]
        ran = finished(cell, path)
        if ran is None:
            waiting.append(CellJob(scenario, cell, path, loaded.world.kind))
        else:
            found.append(ran)
    return found, waiting


def finished(cell: Cell, path: Path) -> Ran | None:
    """The cell that has run at `path`; None where it has not, or not to its end."""
    try:
        result = json.loads((path / "result.json").read_text(encoding="utf-8"))
        code = int(path_beside(path, "exit").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Ran(cell, path, code, result) if code in FINISHED else None


def run_all(waiting: Sequence[CellJob], jobs: int, done: Callable[[Ran], None], progress: StudyProgress) -> None:
    """Run these cells, `jobs` at a time, and tell `done` of each. What was interrupted goes on where it can.

    A process of its own forks them: a process that has used grpc, or has threads, must not. It has a session of its
    own too, so that Ctrl-C reaches this process alone, which ends it; see `netdfl.study.interrupt`.
    """
    by_path: dict[str, list[CellJob]] = {}
    for job in waiting:
        by_path.setdefault(str(job.path.resolve()), []).append(job)
    if not by_path:
        return
    for path in {job.path.parent for job in waiting}:
        path.mkdir(parents=True, exist_ok=True)
    order = {"jobs": jobs, "cells": [_order(path, alike[0]) for path, alike in by_path.items()]}
    with _open_forks() as forks:
        progress.forks = forks
        assert forks.stdin is not None
        assert forks.stdout is not None
        try:
            forks.stdin.write(json.dumps(order).encode())
            forks.stdin.close()
            for line in forks.stdout:
                path, code = json.loads(line)
                for job in by_path.pop(path):
                    done(finished(job.cell, job.path) or Ran(job.cell, job.path, code, None, _log(job)))
        except BaseException:
            end_forks(forks)
            raise
    progress.forks = None
    for job in (job for alike in by_path.values() for job in alike):
        done(Ran(job.cell, job.path, BROKE, None, f"the process that runs the cells ended with {forks.returncode}"))


def _order(path: str, job: CellJob) -> dict[str, object]:
    return {"scenario": str(job.scenario), "sets": job.cell.sets, "path": path, "world": job.world}


def _open_forks() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "netdfl.study.forks", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )


def _log(job: CellJob) -> str:
    try:
        lines = path_beside(job.path, "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
