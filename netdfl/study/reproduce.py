"""The command `netdfl reproduce`: runs the cells of a published table, and compares the results with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from netdfl.core.errors import DatasetError, InputError
from netdfl.core.files import shipped
from netdfl.core.types import Json
from netdfl.report.live import say as print_plain
from netdfl.scenario.load import load
from netdfl.scenario.loading.identity import is_of
from netdfl.scenario.model.schema import Scenario
from netdfl.study.alone import TABLES, alone
from netdfl.study.bar import bar_of
from netdfl.study.cells import CellJob, CellResult, StudyProgress, finished, look, run_all
from netdfl.study.compare import HEADINGS, LISTS, SCHEMA, TERMINAL, WORDS, Comparison, ComparisonRow, row_of, shown
from netdfl.study.plan import Cell
from netdfl.study.progress import StudyPlan, refused_of
from netdfl.study.runners.base import USUAL, RunNeeds, Runner
from netdfl.study.runners.local import LocalRunner
from netdfl.study.trials import FigureSetup, published, scenario_of, select, trials
from netdfl.training.data.dataset import data_root

SCENARIOS = shipped("scenarios") / "papers"


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A request to reproduce a published table.

    Attributes:
        paper: the paper's number or name.
        table: the table.
        globs: patterns for the labels of cells; empty for all cells.
        seeds: the seeds.
        rounds: the number of rounds in place of the paper's, or None.
        sets: overrides of all cells.
        world: the world in which the cells run.
        scenarios: the folder of the scenario files.
    """

    paper: str
    table: str
    globs: Sequence[str] = ()
    seeds: Sequence[int] = (0,)
    rounds: int | None = None
    sets: tuple[str, ...] = ()
    world: str = "simulated"
    scenarios: Path = SCENARIOS

    @property
    def extra(self) -> tuple[str, ...]:
        """The overrides that apply to every cell."""
        rounds = () if self.rounds is None else (f"rounds={self.rounds}",)
        return (*rounds, *self.sets, f"world.kind={self.world}")


@dataclass
class _FigureRuns:
    """The runs for one published number: the cells to run, or the reason why there are none, and the results so far."""

    trial: FigureSetup
    rounds_of_paper: int | None = None
    why_not: str = ""
    cells: list[Cell] = field(default_factory=list)
    ran: list[CellResult] = field(default_factory=list)

    @property
    def row(self) -> ComparisonRow:
        ran = sorted(self.ran, key=lambda each: each.cell.seed)
        return row_of(self.trial, ran, self.rounds_of_paper, self.why_not)


def reproduce(
    request: Reproduction,
    out: Path,
    *,
    jobs: int = 1,
    console: Console,
    far: StudyProgress | None = None,
    make_runner: Callable[[], Runner] = LocalRunner,
    needs: RunNeeds = USUAL,
) -> int:
    """Run the cells of a published table that `request` names, and compare their results with the table.

    Below `out` lie `cells/` with the runs, which all tables share, and the table as JSON, CSV and Markdown, written
    again after each run. Results of an earlier call are kept if their scenario is the same: rows of other cells, and
    other seeds of the same cells. A finished run is not run again.

    Args:
        request: the request.
        out: the folder of the runs and the table.
        jobs: the number of runs at a time.
        console: the terminal.
        far: gets the progress.
        make_runner: makes the runner of the runs.
        needs: the resources that an engine (Ray or Slurm) keeps free for each run.

    Returns:
        0 if all runs succeeded, 1 if one failed, 2 if no cell can run, for lack of a valid scenario or of data. A cell
        that can't run is listed with the reason.

    Raises:
        InputError: There is no such paper, table or cell, or there are no scenarios.
    """
    book = _open(request, out)
    with alone(out / TABLES / f"{book.stem.name}.json"):
        return _reproduce(request, book, out, jobs, console, far, make_runner, needs)


def _reproduce(
    request: Reproduction,
    book: _TableState,
    out: Path,
    jobs: int,
    console: Console,
    far: StudyProgress | None,
    make_runner: Callable[[], Runner],
    needs: RunNeeds,
) -> int:
    book.join()
    far, number = far or StudyProgress(), count(1)
    found, waiting = _look(book.works, request, out / "cells", book)
    far.total = len(found) + len(waiting)

    def say(ran: CellResult) -> None:
        far.finished += not ran.failed
        print_plain(console, f"[{next(number)}/{far.total}] {_line(ran)}")

    def done(ran: CellResult) -> None:
        book.take(ran)
        book.write()
        say(ran)

    for ran in found:
        book.take(ran)
    book.write()
    for ran in found:
        say(ran)
    paths = {ran.cell: ran.path.name for ran in found} | {job.cell: job.path.name for job in waiting}
    table = book.stem.with_name(f"{book.stem.name}.md")
    plan = StudyPlan(book.stem.name, jobs, out / "cells", paths, table, is_sweep=False, refused=refused_of(found))
    plan.write(out / TABLES / f"{book.stem.name}.json")
    with bar_of(plan, console):
        run_all(waiting, jobs, done, far, "published", make_runner=make_runner, needs=needs)
    comparison = book.write()
    _show(comparison, console)
    print_plain(console, f"written: {book.stem}.md, .csv, .json")
    return 2 if not far.total else int(any(ran.failed for work in book.works for ran in work.ran))


def _open(request: Reproduction, out: Path) -> _TableState:
    """Return the state of the requested table, without results of earlier calls. Raises InputError."""
    figures = published(request.paper, request.table)
    if not request.scenarios.is_dir():
        raise InputError(f"{request.scenarios} is no directory; name that of the papers' scenarios with --scenarios")
    every = trials(figures)
    works = [_work(trial, request) for trial in select(every, request.globs)]
    return _TableState(request, figures[0].paper, figures[0].table, every, works, out)


def _work(trial: FigureSetup, request: Reproduction) -> _FigureRuns:
    """Return the cells to run for a published number, or the reason why there are none."""
    if trial.why_not:
        return _FigureRuns(trial)
    file, sets, rounds = scenario_of(trial, request.scenarios), (*trial.sets, *request.extra), None
    try:
        rounds = _rounds(file)
        scenario = load(file, sets)
    except InputError as error:
        return _FigureRuns(trial, rounds, f"no valid scenario: {error}")
    why_not = missing_data(scenario)
    cells = [] if why_not else [Cell(trial.label, (), seed, (*sets, f"seed={seed}")) for seed in request.seeds]
    return _FigureRuns(trial, rounds, why_not, cells)


def _look(
    works: Sequence[_FigureRuns], request: Reproduction, folder: Path, book: _TableState
) -> tuple[list[CellResult], list[CellJob]]:
    """Return results of the runs that exist, and jobs for the runs that have to be made, each only once.

    One run may serve several published numbers with the same scenario file and overrides; `book`, the state of the
    table, stores which.
    """
    by_file: dict[Path, dict[tuple[str, ...], Cell]] = {}
    for work in works:
        cells = by_file.setdefault(scenario_of(work.trial, request.scenarios), {})
        for cell in work.cells:
            book.users.setdefault(cells.setdefault(cell.sets, cell), []).append(work)
    looks = [look(file, list(cells.values()), folder) for file, cells in by_file.items()]
    return [ran for found, _ in looks for ran in found], [job for _, waiting in looks for job in waiting]


@cache
def _rounds(file: Path) -> int:
    return load(file).rounds


def missing_data(scenario: Scenario) -> str:
    """Return the reason why the scenario's data are not available; empty if they are."""
    dataset: Any = getattr(scenario.task, "dataset", None)
    return "" if dataset is None else _missing(type(dataset).function, json.dumps(dataset.params), data_root())


@cache
def _missing(load_data: Callable[..., object], params: str, root: Path) -> str:
    try:
        load_data(root, **json.loads(params))
    except DatasetError as error:
        return str(error)
    return ""


@dataclass
class _TableState:
    """The state of a table that is being reproduced, in memory and on disk."""

    request: Reproduction
    paper: str
    table: str
    every: Sequence[FigureSetup]
    works: Sequence[_FigureRuns]
    out: Path

    users: dict[Cell, list[_FigureRuns]] = field(default_factory=dict)

    def join(self) -> None:
        """Add results of earlier calls with other seeds, if they are still valid and their runs exist."""
        for work in self.works:
            asked = {cell.seed for cell in work.cells}
            row = self._known.get(work.trial.label)
            for run in row.runs if row is not None else ():
                if run["seed"] not in asked and self._run_holds(run, work.trial):
                    cell = Cell(work.trial.label, (), run["seed"], tuple(run["sets"]))
                    work.ran += filter(None, [finished(cell, self.out / "cells" / run["run"])])

    def take(self, ran: CellResult) -> None:
        """Add a run's result to every row that it measures."""
        for work in self.users[ran.cell]:
            work.ran.append(ran)

    @property
    def stem(self) -> Path:
        """The path of the table's files without suffix, different for each set of options."""
        name = f"{self.paper.partition('-')[0]}-{self.table}"
        if self.request.rounds is not None:
            name += f"-{self.request.rounds}-rounds"
        changed = [*self.request.sets, *([self.request.world] * (self.request.world != "simulated"))]
        if changed:
            name += "-" + sha256("\n".join(changed).encode()).hexdigest()[:6]
        return self.out / name

    def write(self) -> Comparison:
        """Write the table and return it. Rows outside this call's request stay as earlier calls wrote them."""
        rows = {work.trial.label: work.row for work in self.works}
        both = [rows.get(trial.label) or self.earlier.get(trial.label) for trial in self.every]
        found = tuple(row for row in both if row is not None)
        comparison = Comparison(self.paper, self.table, self.request.rounds, self.request.sets, found)
        comparison.write(self.stem)
        return comparison

    @cached_property
    def _known(self) -> Mapping[str, ComparisonRow]:
        """The rows that the last call wrote, by the label of their cell."""
        try:
            table = json.loads(self.stem.with_name(f"{self.stem.name}.json").read_text(encoding="utf-8"))
            rows = table["rows"] if table["schema"] == SCHEMA else []
            found = [ComparisonRow(**{**row, **{name: tuple(row.get(name, ())) for name in LISTS}}) for row in rows]
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return {row.cell: row for row in found}

    @cached_property
    def earlier(self) -> Mapping[str, ComparisonRow]:
        """The rows of cells that are not part of this call's request, if their scenario has not changed since."""
        asked = {work.trial.label for work in self.works}
        rows = {trial: self._known[trial.label] for trial in self.every if trial.label in self._known.keys() - asked}
        return {trial.label: row for trial, row in rows.items() if all(self._run_holds(run, trial) for run in row.runs)}

    def _run_holds(self, run: Json, trial: FigureSetup) -> bool:
        if (*trial.sets, *self.request.extra, f"seed={run['seed']}") != tuple(run["sets"]):
            return False
        try:
            scenario = load(scenario_of(trial, self.request.scenarios), run["sets"])
        except InputError:
            return False
        return is_of(scenario, str(run["run"]))


def _line(ran: CellResult) -> str:
    words = ran.cell.words
    if ran.result is None or ran.failed:
        return f"{words}: failed: {ran.why}"
    accuracy = ran.result["test_accuracy"]["average_model"]["mean_last_5"]
    reached = "nothing measured" if accuracy is None else f"{100 * accuracy:.2f} %"
    reasons = "".join(f", {ran.result['verdict']}: {reason}" for reason in ran.result["reasons"][:1])
    return f"{words}: {reached} in {ran.result['duration_s']:.0f} s{reasons}"


def _show(comparison: Comparison, console: Console) -> None:
    rows = [dict(zip(HEADINGS, shown(row), strict=True)) for row in comparison.measured]
    headings = [name for name in TERMINAL if any(row[name] for row in rows)]
    table = Table(title=comparison.title)
    for heading in headings:
        words = heading in WORDS
        table.add_column(heading, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for row in rows:
        table.add_row(*(row[name] for name in headings))
    if rows:
        console.print(table)
    for reason, cells in comparison.missing.items():
        print_plain(console, f"not measured: {reason}")
        for cell in cells:
            print_plain(console, f"  {cell}")


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds in a text: `3` means 0, 1 and 2; `4,7` means 4 and 7; `4,` means 4. Raises InputError."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or ("," not in text and numbers[0] < 1):
        raise InputError(f"--seeds {text}: expected how many, like 3, or a list, like 0,1,2")
    return tuple(numbers) if "," in text else tuple(range(numbers[0]))
