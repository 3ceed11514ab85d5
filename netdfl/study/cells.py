"""The running of cells, each in a process of its own, several at a time; finished ones are kept.

Ctrl-C and SIGTERM end a study at once: first its runs, then itself, with a sentence on its progress.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from netdfl.core.errors import InputError
from netdfl.core.interrupts import ending_signals
from netdfl.core.types import Json
from netdfl.scenario.load import load
from netdfl.scenario.loading.identity import hashes
from netdfl.scenario.model.schema import Scenario
from netdfl.study.forks import BROKE, UNUSABLE, path_beside
from netdfl.study.keeping import FINISHED, Manner, kept
from netdfl.study.plan import Cell


@dataclass(frozen=True)
class CellResult:
    """The result of a cell: its run directory, its exit code, its result (None if it left none), its last words."""

    cell: Cell
    path: Path
    exit_code: int
    result: Json | None
    text: str = ""
    kept: Json = field(default_factory=dict)
    """Figures beside the result that the cell keeps if it was run for a published table (`netdfl.study.keeping`)."""

    @property
    def failed(self) -> bool:
        """Whether the cell has no figures: it could not be run, or broke."""
        return self.result is None or self.exit_code in (UNUSABLE, BROKE)

    @property
    def refused(self) -> bool:
        """Whether the cell's scenario was refused, so that it never began."""
        return self.result is None and self.exit_code == UNUSABLE


@dataclass(frozen=True)
class CellJob:
    """A cell that has to run: its scenario file, its world, and its run directory."""

    scenario: Path
    cell: Cell
    path: Path
    world: str
    cost_s: float = 0.0
    """The CPU time (s) that it will take, where that is known."""


def look(scenario: Path, cells: Sequence[Cell], folder: Path) -> tuple[list[CellResult], list[CellJob]]:
    """Return the cells that have run, or can't be run, and those that have to run."""
    found: list[CellResult] = []
    waiting: list[CellJob] = []
    for cell in cells:
        try:
            loaded = load(scenario, cell.sets)
        except InputError as error:
            found.append(CellResult(cell, folder, UNUSABLE, None, str(error)))
            continue
        path = _place(folder, loaded)
        ran = finished(cell, path)
        if ran is None:
            waiting.append(CellJob(scenario, cell, path, loaded.world.kind))
        else:
            found.append(ran)
    return found, waiting


def _place(folder: Path, scenario: Scenario) -> Path:
    """Return the cell's run directory, which may have the name that an earlier version gave it."""
    known = [folder / each[:16] for each in hashes(scenario)]
    return next((path for path in known if path.exists()), known[0])


def check_values(looked: Sequence[CellResult], cells: Sequence[Cell]) -> None:
    """Raise InputError if a case, or a value that varies, is refused in each of its `cells`: it is a mistake.

    A value that is refused in some of them conflicts with another value, and is reported when the others run.
    """
    refused = {ran.cell: ran.text for ran in looked if ran.refused}
    of_value: dict[str, list[Cell]] = {}
    for cell in cells if refused else ():
        for value in filter(None, [cell.case, *(f"{path}={value}" for path, value in cell.values)]):
            of_value.setdefault(value, []).append(cell)
    wrong: dict[str, list[str]] = {}
    for value, those in of_value.items():
        if all(cell in refused for cell in those):
            wrong.setdefault(refused[those[0]], []).append(value)
    if wrong:
        told = [f"{', '.join(values)} can't be run: {text}" for text, values in wrong.items()]
        raise InputError("\n".join(["no cell was run, as some never can be:", *told]))


def finished(cell: Cell, path: Path) -> CellResult | None:
    """Return the result of the cell that has run at `path`; None if it has not, or not to its end."""
    try:
        result = json.loads((path / "result.json").read_text(encoding="utf-8"))
        code = int(path_beside(path, "exit").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return CellResult(cell, path, code, result, kept=kept(path)) if code in FINISHED else None


def run_all(
    waiting: Sequence[CellJob],
    jobs: int,
    done: Callable[[CellResult], None],
    progress: StudyProgress,
    manner: Manner = "whole",
    until: float | None = None,
) -> None:
    """Run these cells, `jobs` at a time, and call `done` with each result. Interrupted ones are resumed if possible.

    None begins that would end after `until` (of `time.time`); `done` does not hear of these.

    Another process forks them: a process that has used grpc, or has threads, must not fork. It has its own session, so
    that Ctrl-C reaches this process alone, which then ends the other (`ended_by_signals`).
    """
    by_path: dict[str, list[CellJob]] = {}
    for job in waiting:
        by_path.setdefault(str(job.path.resolve()), []).append(job)
    if not by_path:
        return
    for path in {job.path.parent for job in waiting}:
        path.mkdir(parents=True, exist_ok=True)
    cells = [
        {"scenario": str(job.scenario), "sets": job.cell.sets, "path": path, "world": job.world, "cost_s": job.cost_s}
        for path, (job, *_) in by_path.items()
    ]
    with _open_forks() as forks:
        progress.forks = forks
        assert forks.stdin is not None
        assert forks.stdout is not None
        try:
            forks.stdin.write(json.dumps({"jobs": jobs, "manner": manner, "until": until, "cells": cells}).encode())
            forks.stdin.close()
            for line in forks.stdout:
                path, code = json.loads(line)
                jobs_there = by_path.pop(path)
                for job in jobs_there if code is not None else ():
                    done(finished(job.cell, job.path) or CellResult(job.cell, job.path, code, None, _log(job)))
        except BaseException:
            end_forks(forks)
            raise
    progress.forks = None
    for job in (job for alike in by_path.values() for job in alike):
        done(
            CellResult(
                job.cell, job.path, BROKE, None, f"the process that runs the cells ended with {forks.returncode}"
            )
        )


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


INTERRUPTED = 130
GRACE_S = 10.0
"""Time for containers to leave; all else ends at once."""
SHOW_CURSOR = b"\x1b[?25h"


@dataclass
class StudyProgress:
    """The progress of a study, and the process that runs its cells while there is one."""

    finished: int = 0
    total: int = 0
    forks: subprocess.Popen[bytes] | None = None

    @property
    def words(self) -> str:
        """The message for a user who interrupts the study."""
        far = f"{self.finished} of {self.total} runs are finished" if self.total else "nothing has been run yet"
        return f"interrupted: {far}; repeat the command to go on from there"


@contextmanager
def ended_by_signals() -> Iterator[StudyProgress]:
    """End this process at Ctrl-C and SIGTERM, with exit code 130, after the runs of the study have ended.

    The handler itself ends the process: an exception could get lost in the middle of an import, or be shown.
    """
    progress = StudyProgress()

    def end(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        if progress.forks is not None:
            end_forks(progress.forks)
        if os.isatty(1):
            os.write(1, SHOW_CURSOR)  # a bar of progress hides it
        os.write(2, f"{progress.words}\n".encode())
        os._exit(INTERRUPTED)

    before = {each: signal.getsignal(each) for each in ending_signals() if signal.getsignal(each) is not signal.SIG_IGN}
    for each in before:
        signal.signal(each, end)
    try:
        yield progress
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def end_forks(forks: subprocess.Popen[bytes]) -> None:
    """End the process that runs the cells, which ends the cells first; after the grace, kill all at once."""
    forks.terminate()
    try:
        forks.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(forks.pid, signal.SIGKILL)
        forks.wait()
