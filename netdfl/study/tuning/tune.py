"""`netdfl tune`: run values of a deadline or a quorum until the smallest value that reaches a target is known.

The runs are the cells of a sweep, in the same folders and with the same tables. So the same command finds finished runs
again, and `netdfl study` shows the progress.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from netdfl.core.errors import InputError, ScenarioError
from netdfl.report.words import aligned
from netdfl.scenario.load import load
from netdfl.scenario.loading.shipped import find_scenario
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.study import FigureSpec
from netdfl.study.alone import alone, writing_tables
from netdfl.study.cells import CellResult, StudyProgress, look, run_all
from netdfl.study.number_text import number
from netdfl.study.outcome import figures_of, words
from netdfl.study.plan import Cell, GridPlan, cells_of, is_study, places_of
from netdfl.study.plots import figure_of, save
from netdfl.study.progress import FILE, StudyPlan, refused_of
from netdfl.study.refusals import check_values
from netdfl.study.runners.base import Runner
from netdfl.study.runners.local import LocalRunner
from netdfl.study.summary import markdown_table, points_of
from netdfl.study.sweep import write_results
from netdfl.study.tuning.answer import HEADINGS, SearchAnswer, tried
from netdfl.study.tuning.boundary import Decision, search
from netdfl.study.tuning.values import PATHS, Knob, TuneTarget, deadlines, given_values, overrides, quorums

ANSWER = "answer.json"
FOUND, NONE = 0, 1
AUTO = "auto"
BESIDE = ("virtual_duration_s", "missing", "late")
"""Metrics that are plotted beside the target's metric, as they show what a larger value costs."""


@dataclass(frozen=True, kw_only=True)
class TuneOrder:
    """The request for a search.

    Attributes:
        knob: the key to search, `deadline` or `quorum`.
        target: the target that the value must reach.
        confidence: the confidence of intervals, as a share.
        values: the values as text; empty to choose them by the scenario.
        seeds: the number of runs of each value.
        scan: whether every value is run, without the assumption that a larger value does not make the metric worse.
    """

    knob: Knob
    target: TuneTarget
    confidence: float
    values: str = ""
    seeds: int = 5
    scan: bool = False


@dataclass
class _Runs:
    """The runs of a search so far, and all that is needed to make more."""

    file: Path
    sets: Sequence[str]
    out: Path
    jobs: int
    console: Console
    far: StudyProgress
    make_runner: Callable[[], Runner]
    found: dict[Cell, CellResult] = field(default_factory=dict)

    def cells(self, plan: GridPlan) -> list[Cell]:
        """Return the cells (single runs) of a grid, with the overrides of the search."""
        return list(cells_of(plan, load(self.file, self.sets).seed, self.sets))

    def run(self, plan: GridPlan, cells: Sequence[Cell]) -> list[CellResult]:
        """Run these cells, except for those that have run before; return all results in the order of the cells."""
        known, waiting = look(self.file, cells, self.out / "cells")
        names = {each.cell: each.path.name for each in known} | {job.cell: job.path.name for job in waiting}
        self._write_progress(plan, names, refused_of([*self.found.values(), *known]))
        self.far.total += len(cells)
        for each in known:
            self._done(each)
        run_all(waiting, self.jobs, self._done, self.far, make_runner=self.make_runner)
        return [self.found[cell] for cell in cells]

    def _write_progress(self, plan: GridPlan, more: Mapping[Cell, str], refused: Mapping[Cell, str]) -> None:
        names = {each.cell: each.path.name for each in self.found.values()} | dict(more)
        table = self.out / "table.md"
        cells, figures = self.out / "cells", plan.figures
        study = StudyPlan(plan.name, self.jobs, cells, names, table, True, figures, refused=refused)
        study.write(self.out / FILE)

    def _done(self, ran: CellResult) -> None:
        self.found[ran.cell] = ran
        self.far.finished += not ran.failed
        if ran.failed:
            told = f"failed: {ran.cell.words}: {ran.why}"
            self.console.print(told, markup=False, highlight=False)


def tune(
    file: Path,
    order: TuneOrder,
    sets: Sequence[str] = (),
    *,
    out: Path,
    jobs: int = 1,
    console: Console,
    far: StudyProgress | None = None,
    make_runner: Callable[[], Runner] = LocalRunner,
) -> int:
    """Search for the smallest deadline or quorum that reaches a target; print it and return an exit code.

    The table, the plots and `answer.json` are written below `out`. Runs are simulated. Runs that are below `out`
    already are not made again. Returns 0 if a value reaches the target, else 1.

    Raises InputError for a scenario or a value that can't be searched.
    """
    file = find_scenario(file)
    if is_study(file):
        raise InputError(f"{file}: is a study, and a search takes one scenario: name one of `netdfl list scenarios`")
    runs = _Runs(file, [*sets, "world.kind=simulated"], out, jobs, console, far or StudyProgress(), make_runner)
    with alone(out / FILE):
        plan = _plan(runs, order)
        tuning = SearchAnswer(plan.name, order.knob, order.target, order.confidence, list(plan.vary[PATHS[order.knob]]))
        tuning = _searched(runs, plan, order, tuning)
        with writing_tables(out / FILE):
            _write(runs, plan, tuning)
    return FOUND if tuning.answer is not None else NONE


def _plan(runs: _Runs, order: TuneOrder) -> GridPlan:
    """Return the grid of runs for the search: all values of the deadline or quorum, each with all seeds.

    Without `--values`, quorums come from the graph, and deadlines from runs with `deadline: auto`.
    """
    scenario = load(runs.file, runs.sets)
    _check_measured(runs, scenario, order.target)
    path, target = PATHS[order.knob], order.target
    drawn = [FigureSpec(y=name, x=path, log=name == target.figure and target.log) for name in (target.figure, *BESIDE)]
    plan = GridPlan(scenario.name, runs.file, {"": []}, {}, order.seeds, drawn)
    if order.values:
        values = given_values(order.knob, order.values)
    elif order.knob == "quorum":
        values = quorums(scenario)
    else:
        values = _deadlines(runs, plan, order)
    plan = replace(plan, vary={path: overrides(order.knob, values)})
    cells = runs.cells(replace(plan, seeds=1))
    check_values(look(runs.file, cells, runs.out / "cells")[0], cells, runs.file)
    return plan


def _check_measured(runs: _Runs, scenario: Scenario, target: TuneTarget) -> None:
    """Raise InputError if the scenario's task never measures the target's metric."""
    bound = "at_least" if target.is_least else "at_most"
    try:
        load(runs.file, [*runs.sets, f"expect.{target.figure}={{{bound}: {target.bound!r}}}"])
    except ScenarioError as error:
        what = f"{scenario.name}: {target.figure} is never measured by the task {scenario.task.kind}"
        raise InputError(f"{what}; search for the other target, or change the task") from error


def _deadlines(runs: _Runs, plan: GridPlan, order: TuneOrder) -> list[str]:
    """Make runs with `deadline: auto`; return deadlines to try, around the lengths of rounds in these runs.

    Also print the range of the target's metric in these runs.
    """
    path = PATHS["deadline"]
    auto = replace(plan, vary={path: overrides("deadline", [AUTO])})
    ran = runs.run(auto, runs.cells(auto))
    good = [figures_of(each) for each in ran if not each.failed]
    if not good:
        raise InputError(f"no run with {path}={AUTO} came to its end: {ran[0].text}; say --values 10ms,100ms,1s")
    values = deadlines(*([each[name] for each in good if name in each] for name in ("round_s_median", "round_s_p95")))
    name = order.target.figure
    reached = [each[name] for each in good if name in each]
    told = f"{words(name)} {number(name, min(reached))} to {number(name, max(reached))}" if reached else "no figure"
    runs.console.print(f"with {path}={AUTO}: {told}; searched from {values[0]} to {values[-1]}", highlight=False)
    return values


def _searched(runs: _Runs, plan: GridPlan, order: TuneOrder, tuning: SearchAnswer) -> SearchAnswer:
    cells, path = runs.cells(plan), PATHS[order.knob]
    of_value = {value: [cell for cell in cells if dict(cell.values)[path] == value] for value in tuning.values}
    found = {}

    def decide(places: Sequence[int]) -> dict[int, Decision]:
        values = {place: tuning.values[place] for place in places}
        ran = runs.run(plan, [cell for value in values.values() for cell in of_value[value]])
        for place, point in zip(values, points_of(ran), strict=True):
            found[place] = tried(values[place], point, order.target, order.confidence)
        if not any(each.estimate or each.num_failed for each in found.values()):
            what = f"no run of {', '.join(values.values())} has a {words(order.target.figure)} at its end"
            raise InputError(
                f"{what}: its task measures none, or all diverge; look at the runs in {runs.out / 'cells'}"
            )
        return {place: found[place].decision for place in places}

    if order.scan:
        decide(range(len(tuning.values)))
    else:
        search(len(tuning.values), decide, max(1, runs.jobs // order.seeds))
    return replace(tuning, tried=found)


def _write(runs: _Runs, plan: GridPlan, tuning: SearchAnswer) -> None:
    """Write the tables of a sweep for the values that were run, the plot with the target, and the answer; print it."""
    path = PATHS[tuning.knob]
    ran = [runs.found[cell] for cell in runs.cells(plan) if cell in runs.found]
    write_results(ran, plan, runs.out, Console(quiet=True))
    draw_curve(ran, tuning, FigureSpec(y=tuning.target.figure, x=path, log=tuning.target.log), runs.out / "figures")
    (runs.out / "answer.md").write_text(_page(tuning), encoding="utf-8")
    tuning.write(runs.out / ANSWER)
    made = f"{len(tuning.tried)} of {len(tuning.values)} values were run; tables and figures in {runs.out}"
    for line in [*aligned([HEADINGS, *tuning.rows()]), *tuning.lines(), made]:
        runs.console.print(line, markup=False, highlight=False, soft_wrap=True)


def draw_curve(ran: Sequence[CellResult], tuning: SearchAnswer, drawn: FigureSpec, folder: Path) -> None:
    """Plot the target's metric by value into `folder`, with the target as a line, the answer's interval as a band."""
    points = [point for point in points_of(ran) if point.figures.get(drawn.y)]
    if not points:
        return
    figure = figure_of(points, drawn)
    axes, at = figure.axes[0], places_of(tuning.values).at
    axes.axhline(tuning.target.bound, color="#777777", lw=1.0, linestyle="--")
    if tuning.answer is not None:
        low = min(at.values()) if tuning.above is None else at[tuning.above]
        axes.axvspan(low, at[tuning.answer], color="#2f7ed8", alpha=0.1, lw=0)
    axes.set_xscale("log")
    shown = [each.value for each in tuning.tried.values()]
    axes.set_xticks([at[value] for value in shown], shown, rotation=45)
    axes.set_xticks([], minor=True)
    save(figure, folder / f"{drawn.y}.png")


def _page(tuning: SearchAnswer) -> str:
    return markdown_table(HEADINGS, tuning.rows()) + "\n" + "".join(f"{line}\n" for line in tuning.lines())
