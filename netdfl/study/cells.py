"""The running of a study's cells (single runs), each in a separate process, several at a time.

Finished cells are not run again. Ctrl-C and SIGTERM end a study at once: first its runs, then the study itself, with a
sentence on its progress.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from netdfl.core.errors import InputError, Problem, RunError, problems_in
from netdfl.core.interrupts import ending_signals
from netdfl.core.types import Json
from netdfl.record.judge import WELL
from netdfl.record.plain_json import dump_json
from netdfl.running.provenance import other_versions, what_differs
from netdfl.scenario.load import load
from netdfl.scenario.loading.identity import hashes
from netdfl.scenario.loading.resolved import to_plain
from netdfl.scenario.loading.sources import Digests, digests, edited_files, files_of
from netdfl.scenario.model.plugins import ORIGIN, origin_form
from netdfl.scenario.model.schema import Scenario
from netdfl.study.keeping import FINISHED, Manner, kept
from netdfl.study.plan import Cell
from netdfl.study.runners.base import (
    BROKE,
    UNUSABLE,
    USUAL,
    CellOrder,
    RunNeeds,
    Runner,
    StudyOrder,
    last_printed,
    path_beside,
)
from netdfl.study.runners.local import LocalRunner
from netdfl.study.untimed import untimed_work


@dataclass(frozen=True)
class CellResult:
    """The result of a cell, which is one run of a study.

    Attributes:
        cell: the cell.
        path: its run directory.
        exit_code: the exit code of its process.
        result: the contents of `result.json`; None if there is none.
        text: the reason, or the last line of output, if the cell failed.
        problems: the mistakes for which the cell was refused.
    """

    cell: Cell
    path: Path
    exit_code: int
    result: Json | None
    text: str = ""
    kept: Json = field(default_factory=dict)
    """Further metrics of the run, stored if the cell was run for a published table (`netdfl.study.keeping`)."""
    problems: tuple[Problem, ...] = ()
    notices: tuple[str, ...] = ()
    """Remarks on the cell's scenario, such as what `auto` stands for."""
    untimed: str = ""
    """The local work of the cell, as text, if its local rounds take no virtual time (`netdfl.study.untimed`)."""

    @property
    def failed(self) -> bool:
        """Whether the cell has no result, because its run could not start or failed."""
        return self.result is None or self.exit_code in (UNUSABLE, BROKE)

    @property
    def refused(self) -> bool:
        """Whether the scenario of the cell was not valid, so that its run never started."""
        return self.result is None and self.exit_code == UNUSABLE

    @property
    def not_passed(self) -> str:
        """The verdict of a run that did not pass, with its first reason; empty for any other cell."""
        found = self.result or {}
        verdict = found.get("verdict", WELL[0])
        return "" if self.failed or verdict in WELL else ": ".join([verdict, *found.get("reasons", ())[:1]])

    @property
    def why(self) -> str:
        """The reason why the cell failed, as text for users."""
        return self.text or f"exit code {self.exit_code}"


@dataclass(frozen=True)
class CellJob:
    """A cell (one run of a study) that has to be run.

    Attributes:
        scenario: the scenario file.
        text: the cell's own scenario, as it is when the study begins, in JSON.
        cell: the cell.
        path: its run directory.
        world: its kind of world (where its fleet runs), such as `simulated`.
        sources: the digests of the user's modules and of named files, by path.
    """

    scenario: Path
    text: str
    cell: Cell
    path: Path
    world: str
    sources: Digests = field(default_factory=dict)
    cost_s: float = 0.0
    """The CPU time in s that the run will take; 0 if it is not known."""
    notices: tuple[str, ...] = ()
    """Remarks on the cell's scenario, such as what `auto` stands for."""
    untimed: str = ""
    """The local work of the cell, as text, if its local rounds take no virtual time (`netdfl.study.untimed`)."""


def look(
    scenario: Path, cells: Sequence[Cell], folder: Path, told: Callable[[InputError, Cell], InputError] | None = None
) -> tuple[list[CellResult], list[CellJob]]:
    """Divide cells into those that have run or can't be run, and those that have to be run.

    Return results of the former and jobs for the latter. Run directories lie below `folder`. `told` returns the error
    of a cell in the form in which it is reported.

    Raises InputError if a file that a finished run was made from has changed since, or `scenario` changes meanwhile.
    """
    found: list[CellResult] = []
    waiting: list[CellJob] = []
    edited: list[str] = []
    before, sources = digests(filter(Path.is_file, [scenario])), Digests()
    for cell in cells:
        try:
            loaded = load(scenario, cell.sets)
        except InputError as error:
            error = told(error, cell) if told else error
            found.append(CellResult(cell, folder, UNUSABLE, None, str(error), problems=tuple(problems_in(error))))
            continue
        path, untimed = _place(folder, loaded), untimed_work(loaded)
        ran = finished(cell, path)
        if ran is None:
            own = files_of(loaded)
            sources = own | sources  # as they were when the first cell was looked at
            text, own = dump_json(to_plain(loaded)), {name: sources[name] for name in own}
            job = CellJob(scenario, text, cell, path, loaded.world.kind, own)
            waiting.append(replace(job, notices=loaded.notices, untimed=untimed))
        else:
            others = (f"{each} when it was run: digits may differ" for each in other_versions(path))
            found.append(replace(ran, notices=(*loaded.notices, *others), untimed=untimed))
            edited += what_differs(path, loaded)[:1]
    if edited_files(before):
        raise InputError(f"{scenario} was edited while its cells were looked at: repeat the command")
    if edited:
        what = (
            f"{len(edited)} of the finished runs in {folder} were made before {edited[0]}, and one table would mix them"
        )
        raise InputError(f"{what}: put it back, give --out another folder, or delete {folder} to run all anew")
    return found, waiting


def _place(folder: Path, scenario: Scenario) -> Path:
    """Return the cell's run directory below `folder`; an existing one may be named as in an earlier version."""
    known = [folder / each[:16] for each in hashes(scenario)]
    return next((path for path in known if path.exists()), known[0])


def finished(cell: Cell, path: Path) -> CellResult | None:
    """Return the result of the cell that ran at `path`; None if its run has not ended, or has failed."""
    try:
        result = json.loads((path / "result.json").read_text(encoding="utf-8"))
        code = int(path_beside(path, "exit").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return CellResult(cell, path, code, result, kept=kept(path)) if code in FINISHED else None


def ended_meanwhile(known: Sequence[CellResult], waiting: Sequence[CellJob]) -> tuple[list[CellResult], list[CellJob]]:
    """Return `known` and `waiting` again; waiting cells that another command has run meanwhile are now `known`."""
    done = {
        job.cell: replace(ran, notices=job.notices, untimed=job.untimed)
        for job in waiting
        if (ran := finished(job.cell, job.path)) is not None
    }
    return [*known, *done.values()], [job for job in waiting if job.cell not in done]


def ended(cell: Cell, path: Path) -> CellResult | None:
    """Return the result of the cell that ran at `path`, also of one that failed; None if it has not ended."""
    try:
        code = int(path_beside(path, "exit").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return finished(cell, path) or CellResult(cell, path, code, None, why_failed(path))


def why_failed(path: Path) -> str:
    """Return the last line that the run at `path` printed, else the reason of its verdict; empty if it has neither."""
    if printed := last_printed(path):
        return printed
    try:
        reasons = json.loads((path / "result.json").read_text(encoding="utf-8"))["reasons"]
        return str(reasons[0])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def run_all(
    waiting: Sequence[CellJob],
    jobs: int,
    done: Callable[[CellResult], None],
    progress: StudyProgress,
    manner: Manner = "whole",
    until: float | None = None,
    make_runner: Callable[[], Runner] = LocalRunner,
    needs: RunNeeds = USUAL,
) -> None:
    """Run these cells, and call `done` with each result. Interrupted runs are resumed if possible.

    Args:
        waiting: the cells to run.
        jobs: the number of runs at a time; 0: as many as the runner has room for.
        done: takes each result.
        progress: gets the runner, so that a signal can stop it.
        manner: the set of options of the runs: `whole`, `published` or `background`.
        until: the time, as by `time.time`, by which runs must end; a cell that would end later is skipped.
        make_runner: makes the runner.
        needs: the resources that an engine (Ray or Slurm) keeps free for each run.

    Raises:
        InputError: The runner does not fit the cells.
    """
    by_path: dict[Path, list[CellJob]] = {}
    for job in waiting:
        by_path.setdefault(job.path.resolve(), []).append(job)
    if not by_path:
        return
    runner = make_runner()
    _check_places(runner, waiting)
    orders = [_order(path, job) for path, (job, *_) in by_path.items()]
    progress.runner = runner
    try:
        runner.start(StudyOrder(orders, jobs, manner, until, needs))
        for path, code in runner.ended():
            if path not in by_path:
                raise RunError(f"{type(runner).__name__} says that {path} ended, which it was not asked to run")
            alike = by_path.pop(path)
            path_beside(path, "yaml").unlink(missing_ok=True)
            if code is None:
                continue
            for job in alike:
                ran = finished(job.cell, job.path) or _failed(job, code, why_failed(job.path))
                done(replace(ran, notices=job.notices, untimed=job.untimed))
    except BaseException:
        runner.stop()
        raise
    progress.runner = None
    for job in (job for alike in by_path.values() for job in alike):
        done(_failed(job, BROKE, f"{type(runner).__name__} ended without it"))


def _order(path: Path, job: CellJob) -> CellOrder:
    """Return the order for the cell's run in the directory `path`, with its scenario in a file beside the directory.

    Otherwise a scenario that is edited while the study is running would change the runs that have not begun.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path_beside(path, "yaml")
    file.write_text(job.text + "\n", encoding="utf-8")
    origin = dump_json(origin_form(job.scenario.resolve().parent))
    (path.parent / ORIGIN).write_text(origin + "\n", encoding="utf-8")
    return CellOrder(file, (), path, job.world, job.cost_s, sources=job.sources)


def _failed(job: CellJob, code: int, text: str) -> CellResult:
    """Return the result of a run that failed, and write its exit code beside its directory if none is there.

    A run that was killed could not write its exit code, and would look like one that has not begun.
    """
    file = path_beside(job.path, "exit")
    if not file.exists():
        with suppress(OSError):
            file.write_text(f"{BROKE if code in FINISHED else code}\n", encoding="utf-8")
    return CellResult(job.cell, job.path, code, None, text)


def _check_places(runner: Runner, waiting: Sequence[CellJob]) -> None:
    """Raise InputError if a runner on several machines would start fleets that are themselves spread over machines."""
    spanning = sorted({job.world for job in waiting} & {"slurm", "ray"})
    if spanning and not isinstance(runner, LocalRunner):
        raise InputError(
            f"--on {spanning[0]} lets each fleet span machines, and --runner lets each run have one: "
            "leave one of them out"
        )


INTERRUPTED = 130
SHOW_CURSOR = b"\x1b[?25h"


@dataclass
class StudyProgress:
    """The progress of a study: numbers of runs, and the runner that makes them, so that a signal can stop it."""

    finished: int = 0
    total: int = 0
    runner: Runner | None = None

    @property
    def words(self) -> str:
        """The message to a user who interrupts the study."""
        far = f"{self.finished} of {self.total} runs are finished" if self.total else "nothing has been run yet"
        return f"interrupted: {far}; repeat the command to go on from there"


@contextmanager
def ended_by_signals() -> Iterator[StudyProgress]:
    """Make Ctrl-C and SIGTERM end the study's runs, and then this process with exit code 130.

    The signal handler ends the process itself, because an exception could be swallowed during an import, or be printed.
    """
    progress = StudyProgress()

    def end(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        if progress.runner is not None:
            with suppress(Exception):
                progress.runner.stop()
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
