"""The check of a study without a run: its form, its figures, and every combination of its cases and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from netdfl.core.errors import InputError, Problem, ScenarioError, problems_in
from netdfl.running.prepare import check_ready
from netdfl.scenario.load import load
from netdfl.study.cells import CellJob, CellResult, look
from netdfl.study.figure_names import figure_problems
from netdfl.study.plan import Cell, GridPlan, cells_of, read_study
from netdfl.study.refusals import refused_problems


@dataclass
class GridCheck:
    """A grid whose cells (single runs) were checked before any is run, with the results of the check.

    Attributes:
        plan: the grid.
        cells: its cells that were checked.
        known: the results of cells that have run, or can't be run.
        waiting: the jobs for all other cells.
        wrong: mistakes, each with its place in the study's file.
        advice: lines on keys that only some cases or varied parts have.
        notes: remarks, such as combinations that can't be run.
    """

    plan: GridPlan
    cells: Sequence[Cell] = ()
    known: Sequence[CellResult] = ()
    waiting: Sequence[CellJob] = ()
    wrong: list[Problem] = field(default_factory=list)
    advice: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """The grid's size, for people."""
        plan = self.plan
        factors = [_some(len(plan.cases), "case")] if list(plan.cases) != [""] else []
        factors += [f"{_some(len(values), 'value')} of {path}" for path, values in plan.vary.items()]
        count = _some(sum(1 for _ in cells_of(plan, 0)), "run")
        return f"{plan.name}: {' x '.join([*factors, _some(plan.seeds, 'seed')])}: {count}"


def check_study(file: Path, sets: Sequence[str] = ()) -> list[GridCheck]:
    """Check every grid of a study, under the overrides `sets` of all its cells, each combination with one seed.

    Raises InputError with every mistake of the study.
    """
    with TemporaryDirectory() as folder:
        found = checked_grids(file, Path(folder), Path(folder), sets, 1)
        for each in found:
            _try(each)
    _refuse([], found)
    return found


def checked_grids(
    file: Path, scenarios: Path, out: Path, sets: Sequence[str], seeds: int | None = None, heading: str = ""
) -> list[GridCheck]:
    """Check every grid of a study, and write its scenarios to the folder `scenarios`.

    Args:
        file: the study.
        scenarios: the folder of the grids' scenarios.
        out: the folder with the results of earlier runs.
        sets: overrides of all cells.
        seeds: the number of seeds; None takes each grid's own number.
        heading: the first line of the error.

    Raises:
        InputError: With the mistakes of all kinds: in the study's form, its figures, cases and values.
    """
    plans, wrong = read_study(file, scenarios)
    found = [_check(plan, sets, out / plan.name, seeds) for plan in plans]
    _refuse(wrong, found, heading)
    return found


def _refuse(wrong: Sequence[Problem], checks: Sequence[GridCheck], heading: str = "") -> None:
    problems = [*wrong, *(problem for each in checks for problem in each.wrong)]
    if problems:
        advice = [line for each in checks for line in each.advice]
        lines = [heading, str(ScenarioError(list(dict.fromkeys(problems)))), *dict.fromkeys(advice)]
        raise InputError("\n".join(filter(None, lines)))


def _check(plan: GridPlan, sets: Sequence[str], folder: Path, seeds: int | None) -> GridCheck:
    found = GridCheck(plan)
    try:
        found.cells = cells_under(plan, sets, seeds)
        found.known, found.waiting = look(plan.scenario, found.cells, folder / "cells", plan.told)
        found.wrong, found.advice = refused_problems(found.known, found.cells, plan.scenario)
    except InputError as error:
        found.wrong = problems_in(error)
    misspelled = plan.source.misspelled(found.wrong) if plan.source else ()
    found.wrong = [*figure_problems(plan, sets, misspelled), *found.wrong]
    return found


def cells_under(plan: GridPlan, sets: Sequence[str], seeds: int | None) -> list[Cell]:
    """Return the cells (single runs) of a grid under the overrides `sets`, with `seeds` seeds (None: as in the plan).

    Raises InputError for a reason that all cells share.
    """
    chosen = plan if seeds is None else replace(plan, seeds=seeds)
    return list(cells_of(chosen, first_seed(plan, sets), sets))


def first_seed(plan: GridPlan, sets: Sequence[str]) -> int:
    """Return the seed of the plan's scenario under the overrides `sets`.

    An override may fit only one case or one varied part; so the seed is taken from the first cell that accepts them
    all. If none does, and the cells are refused for different reasons, the result is 0. Raises InputError for a reason
    that all cells share.
    """
    try:
        return load(plan.scenario, sets).seed
    except InputError as error:
        reasons = set()
        for cell in cells_of(replace(plan, seeds=1), 0, sets):
            try:
                return load(plan.scenario, cell.sets[:-1]).seed
            except InputError as own:
                reasons.add(str(own))
        if reasons == {str(error)}:
            raise plan.told(error) from None
    return 0


def _some(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _try(found: GridCheck) -> None:
    """Note combinations that can't be run; check whether this machine can run the first other cell of each case."""
    plan, refused = found.plan, {each.cell: each for each in found.known if each.refused}
    for cell, each in refused.items():
        name = ", ".join(filter(None, [cell.case, *map("=".join, cell.values)]))
        found.notes.append(f"{plan.name}: {name} can't be run: {each.text}")
    first: dict[str, Cell] = {}
    for cell in found.cells:
        if cell not in refused:
            first.setdefault(cell.case, cell)
    for cell in first.values():
        scenario = load(plan.scenario, cell.sets)
        try:
            notes = [*scenario.notices, *check_ready(scenario)]
        except InputError as error:
            found.wrong += problems_in(plan.told(error, cell))
            continue
        found.notes += [note for note in notes if note not in found.notes]
