"""The check of a study without a run: its form, its figures, and every combination of its cases and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from netdfl.core.errors import InputError
from netdfl.running.prepare import check_ready
from netdfl.scenario.load import load
from netdfl.study.cells import CellResult, look
from netdfl.study.figure_names import figure_problems
from netdfl.study.plan import Cell, GridPlan, cells_of, load_study
from netdfl.study.refusals import refused_values
from netdfl.study.sweep import first_seed


@dataclass
class GridCheck:
    """The result of the check of a grid.

    Attributes:
        sentence: the grid's size, for people.
        wrong: mistakes, each with its place in the study's file.
        notes: remarks, such as combinations that can't be run.
    """

    sentence: str
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_study(file: Path, sets: Sequence[str] = ()) -> list[GridCheck]:
    """Check every grid of a study, under the overrides `sets` of all its cells, each combination with one seed.

    Raises InputError with every mistake of the study.
    """
    with TemporaryDirectory() as folder:
        found = [_check(plan, sets, Path(folder)) for plan in load_study(file, Path(folder))]
    if wrong := [line for each in found for line in each.wrong]:
        raise InputError("\n".join(dict.fromkeys(line for text in wrong for line in text.splitlines())))
    return found


def _check(plan: GridPlan, sets: Sequence[str], folder: Path) -> GridCheck:
    found = GridCheck(_sentence(plan), [str(each) for each in figure_problems(plan, sets)])
    try:
        seed = first_seed(plan, sets)
    except InputError as error:
        found.wrong.append(str(error))
        return found
    cells = list(cells_of(replace(plan, seeds=1), seed, sets))
    refused, _ = look(plan.scenario, cells, folder / "cells", plan.told)
    found.wrong += refused_values(refused, cells)
    if not found.wrong:
        found.notes += _conflicts(plan, refused)
        _try(plan, _able(cells, refused), found)
    return found


def _sentence(plan: GridPlan) -> str:
    factors = [_some(len(plan.cases), "case")] if list(plan.cases) != [""] else []
    factors += [f"{_some(len(values), 'value')} of {path}" for path, values in plan.vary.items()]
    count = _some(sum(1 for _ in cells_of(plan, 0)), "run")
    return f"{plan.name}: {' x '.join([*factors, _some(plan.seeds, 'seed')])}: {count}"


def _some(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _conflicts(plan: GridPlan, refused: Sequence[CellResult]) -> list[str]:
    """Return a sentence for each combination that can't be run, whose parts can be in other combinations."""
    named = [", ".join(filter(None, [each.cell.case, *map("=".join, each.cell.values)])) for each in refused]
    return [f"{plan.name}: {name} can't be run: {each.text}" for name, each in zip(named, refused, strict=True)]


def _able(cells: Sequence[Cell], refused: Sequence[CellResult]) -> list[Cell]:
    """Return the first valid cell of each case."""
    not_valid = {each.cell for each in refused}
    first: dict[str, Cell] = {}
    for cell in cells:
        if cell not in not_valid:
            first.setdefault(cell.case, cell)
    return list(first.values())


def _try(plan: GridPlan, cells: Sequence[Cell], found: GridCheck) -> None:
    """Check whether this machine can run these cells, and add what is wrong, and remarks, to `found`."""
    for cell in cells:
        scenario = load(plan.scenario, cell.sets)
        try:
            notes = [*scenario.notices, *check_ready(scenario)]
        except InputError as error:
            found.wrong.append(str(plan.told(error, cell)))
            continue
        found.notes += [note for note in notes if note not in found.notes]
