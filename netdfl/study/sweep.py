"""The command `netdfl sweep`: runs a grid, resumes it, and summarizes it in a table and plots."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from netdfl.core.errors import InputError
from netdfl.report.live import say as print_plain
from netdfl.scenario.load import load
from netdfl.scenario.loading.shipped import find_scenario
from netdfl.scenario.model.study import FigureSpec
from netdfl.study.alone import alone, is_under_way, writing_tables
from netdfl.study.bar import bar_of, line_of
from netdfl.study.cells import CellJob, CellResult, ended_meanwhile, look, run_all
from netdfl.study.cells import StudyProgress as Far
from netdfl.study.checking import GridCheck, cells_under, checked_grids
from netdfl.study.figure_files import names_of, remove, stems_of
from netdfl.study.labels import Labels, labels_of, shortened
from netdfl.study.number_text import number
from netdfl.study.plan import LEARNING, LOGS, Cell, GridPlan, each_value, is_study, parse_vary, places_of
from netdfl.study.plots import name_of
from netdfl.study.progress import FILE, StudyPlan, StudyState, refused_of
from netdfl.study.refusals import check_values
from netdfl.study.run_links import link_runs
from netdfl.study.runners.base import USUAL, RunNeeds, Runner
from netdfl.study.runners.local import LocalRunner
from netdfl.study.summary import GridPoint, estimates, points_of, write_cells, write_points, write_table
from netdfl.study.tables import SweepTable
from netdfl.study.untimed import TIMED, as_notices, time_note
from netdfl.study.warned import notices_of, warnings_of

SHOWN = (
    "test_accuracy",
    "error",
    "consensus_distance",
    "weight_sum",
    "deadlock",
    "stalled",
    "rounds_per_s",
    "lost",
    "late",
)


def sweep(
    file: Path,
    vary: Sequence[str] = (),
    sets: Sequence[str] = (),
    *,
    out: Path,
    seeds: int | None = None,
    jobs: int = 1,
    console: Console,
    far: Far | None = None,
    make_runner: Callable[[], Runner] = LocalRunner,
    needs: RunNeeds = USUAL,
) -> int:
    """Run every grid of `file`; return the number of failed cells.

    A scenario is one grid. A study has several, and names its own varied values. Below `out` lie, for each grid,
    `cells/` with the runs and `runs/` with links that name them, `cells.csv` with a row for each run, means with
    intervals as `table.csv`, `table.md` and `table.tex`, `differences.csv` with the tested differences, and `figures/`.

    A finished cell is not run again. No cell is run if one of the values is refused in all its cells.

    Args:
        file: a scenario or a study.
        vary: the varied values of a scenario, as `path=v1,v2`.
        sets: overrides of all cells, which a cell's own overrides follow.
        out: the folder of the results.
        seeds: the number of seeds; None takes the study's own number, or 5.
        jobs: the number of runs at a time.
        console: the terminal.
        far: gets the progress.
        make_runner: makes the runner of the runs.
        needs: the resources that an engine (Ray or Slurm) keeps free for each run.

    Raises:
        InputError: The file, or a value, is not valid.
    """
    file = find_scenario(file)
    study = is_study(file)
    if study and vary:
        raise InputError(f"{file}: is a study and says itself what varies; --vary is for a scenario, --set for both")
    grids = _of_study(file, sets, out, seeds) if study else [_of_scenario(file, vary, sets, out, seeds)]
    far = far or Far()
    far.total = sum(len(grid.cells) for grid in grids)
    with ExitStack() as locks:
        for grid in grids:
            locks.enter_context(alone(out / grid.plan.name / FILE))
        return sum(_run(grid, out / grid.plan.name, jobs, console, far, make_runner, needs) for grid in grids)


def as_progress(grid: GridCheck, out: Path, jobs: int) -> StudyPlan:
    """Return the plan of a grid's cells, whose results go to `out`, in the form that `netdfl study` reads."""
    paths = {each.cell: each.path.name for each in grid.known} | {job.cell: job.path.name for job in grid.waiting}
    plan, cells = grid.plan, {cell: paths[cell] for cell in grid.cells}
    folder, table = out / "cells", out / "table.md"
    refused = refused_of(grid.known)
    return StudyPlan(plan.name, jobs, folder, cells, table, True, plan.figures, plan.learning, plan.title, refused)


def write_so_far(folder: Path, study: StudyState) -> None:
    """Write the tables and plots of an unfinished grid from the runs so far, of which the tables say how many."""
    with writing_tables(folder / FILE):
        now = StudyState.of(study.plan)
        if now.over and is_under_way(folder / FILE):
            return  # the study's command writes the tables of all runs
        _write_so_far(folder, now)


def _write_so_far(folder: Path, study: StudyState) -> None:
    plan = study.plan
    counts = {state: study.num(state) for state in ("running", "queued", "failed")}
    told = ", ".join(f"{num} {state}" for state, num in counts.items() if num or state != "running")
    so_far = "" if study.over else f"From {study.num('finished')} of {len(study.cells)} runs; {told}."
    grid = GridPlan(plan.name, folder / FILE, {}, {}, 0, plan.figures, plan.learning, title=plan.title)
    write_results(study.ended, grid, folder, Console(quiet=True), so_far)


def _of_study(file: Path, sets: Sequence[str], out: Path, seeds: int | None) -> list[GridCheck]:
    new = next((folder for folder in (*reversed(out.parents), out) if not folder.exists()), None)
    try:
        return checked_grids(file, out / "scenarios", out, sets, seeds, "nothing was run, because of these mistakes:")
    except InputError:
        if new is not None:
            shutil.rmtree(new, ignore_errors=True)
        raise


def _of_scenario(file: Path, vary: Sequence[str], sets: Sequence[str], out: Path, seeds: int | None) -> GridCheck:
    plan = _plan_of(file, vary)
    cells = cells_under(plan, sets, seeds)
    known, waiting = look(plan.scenario, cells, out / plan.name / "cells", plan.told)
    check_values(known, cells, plan.scenario)
    return GridCheck(plan, cells, known, waiting)


def _plan_of(file: Path, vary: Sequence[str]) -> GridPlan:
    varied = dict(map(parse_vary, vary))
    ordered = (path for path, values in varied.items() if places_of(values).ordered)
    across = next(ordered, next(iter(varied), ""))
    names = ("test_accuracy", "error", "consensus_distance", "bytes_sent", "virtual_duration_s", "stalled")
    drawn = [FigureSpec(y=name, x=across, log=name in LOGS) for name in names if across]
    overrides = {path: each_value(path, values) for path, values in varied.items()}
    return GridPlan(load(file).name, file, {"": []}, overrides, 5, drawn, LEARNING)


def _with_own_figures(plan: GridPlan, points: Sequence[GridPoint]) -> GridPlan:
    """Return `plan` with plots of the metrics that the user's own task defines, such as `test_mae`, added.

    A study itself defines its plots against varied values, so it only gets plots over rounds, time and bytes.
    """
    own = _own(points)
    if plan.source is not None:
        return replace(plan, learning=(*own, *plan.learning))
    drawn = [FigureSpec(y=name, x=plan.figures[0].x, log=False) for name in own if plan.figures]
    return replace(plan, figures=[*drawn, *plan.figures], learning=(*own, *plan.learning))


def _own(points: Sequence[GridPoint]) -> list[str]:
    measured = {name for point in points for name in point.figures if name.startswith("test_")}
    return sorted(measured - {"test_accuracy", "test_loss"})


def _run(
    grid: GridCheck,
    out: Path,
    jobs: int,
    console: Console,
    far: Far,
    make_runner: Callable[[], Runner],
    needs: RunNeeds,
) -> int:
    """Make the runs of a grid that have not ended yet, and write its results to `out`; return how many runs failed."""
    plan, cells = grid.plan, grid.cells
    known, waiting = ended_meanwhile(grid.known, grid.waiting)
    _drop_stale(plan, out, console)
    progress = as_progress(grid, out, jobs)
    progress.write(out / FILE)
    found: dict[Cell, CellResult] = {}
    to_run = {job.cell for job in waiting}
    labels = labels_of(cell.values for cell in cells)

    def done(ran: CellResult) -> None:
        found[ran.cell] = ran
        far.finished += not ran.failed
        if ran.failed:
            console.print(f"failed: {ran.cell.words}: {ran.why}", markup=False)
        elif ran.cell in to_run and not console.is_terminal:
            name = f"{name_of(ran.cell.case, shortened(ran.cell.values, labels))}, seed {ran.cell.seed}"
            print_plain(console, f"{far.finished} of {far.total}: {line_of(ran, name.removeprefix(', '))}")

    for each in known:
        done(each)
    for note in _notes([*known, *waiting], labels):
        console.print(f"note: {note}", markup=False, highlight=False)
    with bar_of(progress, console):
        run_all(waiting, jobs, done, far, make_runner=make_runner, needs=needs)
    (out / "cells").mkdir(parents=True, exist_ok=True)
    with writing_tables(out / FILE):
        return write_results([found[cell] for cell in cells], plan, out, console)


def _notes(cells: Sequence[CellResult | CellJob], labels: Labels) -> list[str]:
    """Return the notices of the scenarios that can be run, each once; one that concerns only some cells names them."""
    can_run = [each for each in cells if not (isinstance(each, CellResult) and each.refused)]
    named = [replace(each.cell, values=shortened(each.cell.values, labels)) for each in can_run]
    common, of_some = notices_of((cell, each.notices) for cell, each in zip(named, can_run, strict=True))
    return [*common, *of_some, *as_notices(time_note(each.untimed for each in can_run))]


def _drop_stale(plan: GridPlan, out: Path, console: Console) -> None:
    """Remove the plots that an earlier call of the study drew to `out`, if `plan` lacks them now; other files stay."""
    with suppress(InputError):  # there was none
        earlier = StudyPlan.read(out / FILE)
        names = names_of(earlier.figures, earlier.learning) - names_of(plan.figures, plan.learning)
        if removed := remove(out / "figures", names):
            told = f"removed from {out / 'figures'}, as they are drawn no more: {', '.join(removed)}"
            console.print(told, markup=False)


def write_results(ran: Sequence[CellResult], plan: GridPlan, out: Path, console: Console, so_far: str = "") -> int:
    """Write the tables and plots of these cells of a grid; return the number of failed cells.

    `so_far` is a sentence on how many runs the tables cover, if the grid is not finished.
    """
    points = points_of(ran)
    plan = _with_own_figures(plan, points)
    write_cells(out / "cells.csv", ran)
    write_points(out / "table.csv", points, LOGS)
    if why := link_runs(ran, out / "runs"):
        console.print(f"note: {why}", markup=False, highlight=False)
    labels = labels_of(point.values for point in points)
    points = [point._replace(values=shortened(point.values, labels)) for point in points]
    names = _worth_showing(points, plan.figures)
    called = [replace(each, cell=replace(each.cell, values=shortened(each.cell.values, labels))) for each in ran]
    common, of_some = notices_of((each.cell, each.notices) for each in called if not each.refused)
    untimed = time_note(each.untimed for each in ran)
    warned = [*warnings_of(called), *of_some, *as_notices(untimed)]
    _write_tables(SweepTable(points, names, LOGS, [*warned, *common], untimed, so_far), plan, out, console)
    undrawn = _draw(called, points, plan, out / "figures")
    for drawn in undrawn if plan.source else ():
        why = _why_not(points, drawn)
        console.print(f"figure {drawn.y} by {drawn.x} is not drawn: {why}", markup=False, highlight=False)
    if warned:
        lines = "".join(f"\n- {each}" for each in warned)
        console.print(f"before you read the figures:{lines}", markup=False, highlight=False)
    num_failed = sum(each.failed for each in ran)
    written = "tables and figures" if (out / "figures").is_dir() else "tables"
    bad = sum(bool(each.not_passed) for each in ran)
    ended = f"{num_failed} failed" + f", {bad} did not pass" * bool(bad)
    console.print(f"{len(ran)} cells, {ended}; {written} in {out}", markup=False)
    return num_failed


def _write_tables(table: SweepTable, plan: GridPlan, out: Path, console: Console) -> None:
    write_table(out / "table.md", table.markdown(plan.title))
    write_table(out / "table.tex", table.latex(plan.name, plan.title))
    table.write_differences(out / "differences.csv")
    table.show(plan.title or plan.name, console)


def _draw(ran: Sequence[CellResult], points: Sequence[GridPoint], plan: GridPlan, folder: Path) -> list[FigureSpec]:
    """Draw the plots of a plan to `folder`; return those that would be empty, or show one value, and are not drawn."""
    from netdfl.study.learning import draw_learning

    for metric in plan.learning:
        draw_learning(ran, metric, folder, log=metric in LOGS)
    labels = {drawn.y: drawn.label for drawn in plan.figures if drawn.label}
    named = list(zip(stems_of(plan.figures), plan.figures, strict=True))
    empty = {name: drawn for name, drawn in named if not _draw_one(ran, points, drawn, labels, folder / f"{name}.png")}
    remove(folder, empty)
    return list(empty.values())


def _draw_one(
    ran: Sequence[CellResult],
    points: Sequence[GridPoint],
    drawn: FigureSpec,
    labels: Mapping[str, str],
    path: Path,
) -> bool:
    """Draw one plot to `path`; return whether there was something to draw."""
    from netdfl.study.curves import draw_curves, draw_points, draw_sent
    from netdfl.study.plots import draw

    if drawn.x == "round":
        return draw_curves(ran, drawn, path)
    if drawn.x == "bytes_sent":
        return draw_sent(ran, drawn, path)
    if "@" in drawn.x:
        return draw_points(ran, drawn, path, labels)
    if drawn.y not in _worth_showing(points, [drawn]) or len(_shown(points, drawn)) < 2:
        return False
    draw(points, drawn, path, time_note(each.untimed for each in ran) if drawn.y in TIMED else "")
    return True


def _worth_showing(points: Sequence[GridPoint], figures: Sequence[FigureSpec]) -> list[str]:
    """Return the names of the metrics for tables, without those that are 0 in every run.

    They are the metrics that are plotted or, if none is, the usual ones.
    """
    asked = dict.fromkeys(drawn.y for drawn in figures)
    known = {name for point in points for name, values in point.figures.items() if any(values)}
    return [name for name in (asked or [*_own(points), *SHOWN]) if name in known]


def _shown(points: Sequence[GridPoint], drawn: FigureSpec) -> set[tuple[str, ...]]:
    """Return the different estimates of a plot's metric at these points, as text: the mean first, and its interval."""
    found = [estimates(point, drawn.y, log=drawn.log) for point in points]
    return {tuple(number(drawn.y, x) for x in (e.mean, e.low, e.high)) for e in found if e is not None}


def _why_not(points: Sequence[GridPoint], drawn: FigureSpec) -> str:
    """Return why a plot is not drawn: its metric is the same in all rows of the table, or there is none."""
    shown = _shown(points, drawn) if drawn.x != "round" else set()
    return f"it is {shown.pop()[0]} in all rows" if len(shown) == 1 else "the runs have nothing to show"
