"""`netdfl sweep`: run a grid, resume it, and say what it came to in one table and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from netdfl.core.errors import InputError
from netdfl.scenario.load import load
from netdfl.scenario.loading.shipped import find_scenario
from netdfl.study.cells import Ran, look, run_all
from netdfl.study.interrupt import StudyProgress as Far
from netdfl.study.outcome import PERCENT, WARNED
from netdfl.study.plan import Cell, Drawn, Plan, cells_of, each_value, is_study, load_study, parse_vary
from netdfl.study.summary import Estimate, Point, estimates, markdown_table, points_of, write_cells, write_points

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
LOGS = frozenset({"error", "consensus_distance"})


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
) -> int:
    """Run every grid of `file`; return how many cells failed. Raises InputError.

    A scenario is one grid, of `vary`; a study says what varies. `sets` override keys in all cells, before what a
    cell overrides itself. Below `out` lie, for each grid, `cells/` with the
    runs, `cells.csv` with a row for each, `table.csv` with means and intervals, `table.md`, and `figures/`.
    A cell that has finished is not run again. `far` is told how far it is.
    """
    file = find_scenario(file)
    study = is_study(file)
    if study and vary:
        raise InputError(f"{file}: is a study and says itself what varies; --vary is for a scenario, --set for both")
    plans = load_study(file, out / "scenarios") if study else [_plan_of(file, vary)]
    grids = [(plan, _cells(plan, seeds, sets)) for plan in plans]
    far = far or Far()
    far.total = sum(len(cells) for _, cells in grids)
    return sum(_run(plan, cells, out / plan.name, jobs, console, far) for plan, cells in grids)


def _plan_of(file: Path, vary: Sequence[str]) -> Plan:
    varied = dict(map(parse_vary, vary))
    numeric = next(iter(varied), "")
    names = ("test_accuracy", "error", "consensus_distance", "stalled")
    drawn = [Drawn(y=name, x=numeric, log=name in LOGS) for name in names if numeric]
    overrides = {path: each_value(path, values) for path, values in varied.items()}
    return Plan(load(file).name, file, {"": []}, overrides, 5, drawn)


def _cells(plan: Plan, seeds: int | None, sets: Sequence[str]) -> list[Cell]:
    chosen = plan if seeds is None else replace(plan, seeds=seeds)
    return list(cells_of(chosen, load(plan.scenario, sets).seed, sets))


def _run(plan: Plan, cells: Sequence[Cell], out: Path, jobs: int, console: Console, far: Far) -> int:
    found: dict[Cell, Ran] = {}
    columns = (TextColumn(f"{plan.name}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, auto_refresh=False, disable=not console.is_terminal) as progress:
        task = progress.add_task(plan.name, total=len(cells))

        def done(ran: Ran) -> None:
            found[ran.cell] = ran
            far.finished += not ran.failed
            progress.advance(task)
            progress.refresh()
            if ran.failed:
                console.print(f"failed: {ran.cell.words}: {ran.text or f'exit code {ran.exit_code}'}", markup=False)

        known, waiting = look(plan.scenario, cells, out / "cells")
        for each in known:
            done(each)
        run_all(waiting, jobs, done, far)
    (out / "cells").mkdir(parents=True, exist_ok=True)
    ran = [found[cell] for cell in cells]
    points = points_of(ran)
    write_cells(out / "cells.csv", ran)
    write_points(out / "table.csv", points, LOGS)
    names = _worth_showing(points, plan.figures)
    (out / "table.md").write_text(_markdown(points, names), encoding="utf-8")
    _show(points, names, plan.name, console)
    _draw(ran, points, plan.figures, out / "figures")
    for kind in WARNED:
        if of := sum(bool(value) for point in points for value in point.figures.get(kind, ())):
            console.print(f"{of} of {len(ran)} cells {kind}: see {kind} in {out / 'cells.csv'}", markup=False)
    num_failed = sum(each.failed for each in ran)
    console.print(f"{len(ran)} cells, {num_failed} failed; tables and figures in {out}", markup=False)
    return num_failed


def _draw(ran: Sequence[Ran], points: Sequence[Point], figures: Sequence[Drawn], folder: Path) -> None:
    from netdfl.study.curves import draw_curves, draw_points, draw_sent
    from netdfl.study.plots import draw

    labels = {drawn.y: drawn.label for drawn in figures if drawn.label}
    for drawn in figures:
        if drawn.x == "round":
            draw_curves(ran, drawn, folder / f"{drawn.y}_by_round.png")
        elif drawn.x == "bytes_sent":
            draw_sent(ran, drawn, folder / f"{drawn.y}_by_bytes_sent.png")
        elif "@" in drawn.x:
            draw_points(ran, drawn, folder / f"{drawn.y}_by_{drawn.x.partition('@')[0]}.png", labels)
        elif any(drawn.y in point.figures for point in points):
            draw(points, drawn, folder / f"{drawn.y}.png")


def _worth_showing(points: Sequence[Point], figures: Sequence[Drawn]) -> list[str]:
    asked = dict.fromkeys(drawn.y for drawn in figures)
    known = {name for point in points for name in point.figures}
    return [name for name in (asked or SHOWN) if name in known]


def _show(points: Sequence[Point], names: Sequence[str], title: str, console: Console) -> None:
    table = Table(title=title)
    for heading in _headings(points, names):
        table.add_column(heading)
    for point in points:
        table.add_row(*_row(point, names))
    console.print(table)


def _markdown(points: Sequence[Point], names: Sequence[str]) -> str:
    return markdown_table(_headings(points, names), (_row(point, names) for point in points))


def _headings(points: Sequence[Point], names: Sequence[str]) -> list[str]:
    varied = [name for name, _ in points[0].values] if points else []
    return ["case", *varied, "cells", *names]


def _row(point: Point, names: Sequence[str]) -> list[str]:
    found = [estimates(point, name, log=name in LOGS) for name in names]
    count = max((e.cells for e in found if e is not None), default=0)
    cells = f"{count}" if not point.num_failed else f"{count} ({point.num_failed} failed)"
    return [point.case or "-", *(value for _, value in point.values), cells, *map(_words, names, found)]


def _words(name: str, found: Estimate | None) -> str:
    if found is None:
        return "-"
    mean, low, high = (f"{100 * x:.3g}%" if name in PERCENT else f"{x:.3g}" for x in found[1:])
    return f"{mean} ({low} to {high})"
