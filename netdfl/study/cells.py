"""Runs cells, each as `netdfl run` would in a process of its own, several at a time; those that have finished stay.

Ctrl-C and SIGTERM end a study at once: first its runs, then itself, with one sentence on how far it has come.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from netdfl.core.errors import InputError
from netdfl.core.interrupts import ending_signals
from netdfl.core.types import Json
from netdfl.scenario.load import load
from netdfl.scenario.loading.identity import hashes
from netdfl.scenario.model.schema import Scenario
from netdfl.study.forks import BROKE, FINISHED, UNUSABLE, path_beside
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

    @property
    def refused(self) -> bool:
        """Whether its scenario was: it never began."""
        return self.result is None and self.exit_code == UNUSABLE


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
        path = _place(folder, loaded)
        ran = finished(cell, path)
        if ran is None:
            waiting.append(CellJob(scenario, cell, path, loaded.world.kind))
        else:
            found.append(ran)
    return found, waiting


def _place(folder: Path, scenario: Scenario) -> Path:
    """Where the cell's run lies, under the name that this version or an earlier one gave it, or will lie."""
    known = [folder / each[:16] for each in hashes(scenario)]
    return next((path for path in known if path.exists()), known[0])


def check_values(looked: Sequence[Ran], cells: Sequence[Cell]) -> None:
    """Raise InputError where a case, or a value of what varies, is refused in each of its `cells`: so it is a mistake.

    What is refused in some of them does not go together with another value, and is named when the others run.
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
    own too, so that Ctrl-C reaches this process alone, which ends it; see `ended_by_signals`.
    """
    by_path: dict[str, list[CellJob]] = {}
    for job in waiting:
        by_path.setdefault(str(job.path.resolve()), []).append(job)
    if not by_path:
        return
    for path in {job.path.parent for job in waiting}:
        path.mkdir(parents=True, exist_ok=True)
    cells = [
        {"scenario": str(job.scenario), "sets": job.cell.sets, "path": path, "world": job.world}
        for path, (job, *_) in by_path.items()
    ]
    with _open_forks() as forks:
        progress.forks = forks
        assert forks.stdin is not None
        assert forks.stdout is not None
        try:
            forks.stdin.write(json.dumps({"jobs": jobs, "cells": cells}).encode())
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
"""How long containers may take to leave; all else takes no time."""
SHOW_CURSOR = b"\x1b[?25h"


@dataclass
class StudyProgress:
    """How far a study is, and the process that runs its cells while there is one."""

    finished: int = 0
    total: int = 0
    forks: subprocess.Popen[bytes] | None = None

    @property
    def words(self) -> str:
        """What somebody is told who ends it."""
        far = f"{self.finished} of {self.total} runs are finished" if self.total else "nothing has been run yet"
        return f"interrupted: {far}; repeat the command to go on from there"


@contextmanager
def ended_by_signals() -> Iterator[StudyProgress]:
    """End this process at Ctrl-C and SIGTERM, with exit code 130, when the runs of the study have ended.

    It ends in the handler, wherever it is: an exception would get lost in the middle of an import, or be shown.
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
    """End the process that runs the cells, which ends these first; after the grace, all at once."""
    forks.terminate()
    try:
        forks.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(forks.pid, signal.SIGKILL)
        forks.wait()
