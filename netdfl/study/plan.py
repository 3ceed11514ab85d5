"""The plan of a sweep: a scenario, cases (named overrides), varied values and seeds, from options or a study's file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeAlias

from netdfl.core.errors import InputError, Problem, ScenarioError, problems_in
from netdfl.core.files import OTHER_OUT, writing
from netdfl.core.units import parse_probability, parse_rate_bps, parse_size_bytes, parse_time_ns
from netdfl.record.plain_json import dump_json
from netdfl.scenario.loading.document import Document
from netdfl.scenario.loading.given import document_of, is_study_document
from netdfl.scenario.model.plugins import ORIGIN
from netdfl.scenario.model.study import Cases, FigureSpec, Sweep
from netdfl.study.form import read_form
from netdfl.study.merged import overrides_of, written
from netdfl.study.source import GridSource

Values = tuple[tuple[str, str], ...]
"""Varied values: pairs of a path of the scenario, or a name, and the value as text."""
Place: TypeAlias = tuple[str, Values]
"""The case of a point or line of a grid, and its varied values."""
CASE = "case"
"""The name that a plot's `x` or `panels` has for the cases."""
LEARNING = ("test_accuracy", "test_loss", "error", "consensus_distance")
"""The metrics that every sweep draws over rounds, time and bytes."""
LOGS = frozenset({"error", "consensus_distance"})
"""The metrics that are averaged and drawn by their logarithm, unless a study says otherwise for a plot."""


@dataclass(frozen=True)
class GridPlan:
    """A grid of runs that is ready to be run.

    Attributes:
        name: the name of the grid.
        scenario: the scenario file.
        cases: the overrides of each case, by its name.
        vary: the overrides of each value, by the varied path or name, and by the value's text.
        seeds: the number of seeds.
        figures: the plots to draw.
        learning: the metrics of the fleet to draw over rounds, time and bytes.
        source: the grid's part of the study's file; None for a grid that is not from a study.
        title: the grid's title in captions and headings; empty: its name.
    """

    name: str
    scenario: Path
    cases: Mapping[str, Sequence[str]]
    vary: Mapping[str, Mapping[str, Sequence[str]]]
    seeds: int
    figures: Sequence[FigureSpec]
    learning: Sequence[str] = ()
    source: GridSource | None = None
    title: str = ""

    def told(self, error: InputError, cell: Cell | None = None) -> InputError:
        """Return `error`, about the scenario or a cell, with its mistakes placed in the study or at option `--vary`."""
        if self.source is None:
            return error if cell is None else _as_typed(error, cell)
        if cell is None:
            return self.source.moved(error, "", ())
        return self.source.moved(error, cell.case, cell.values)

    def problem(self, path: Sequence[str | int], what: str) -> Problem:
        """Create a `Problem` at `path`, relative to the grid; it has a place if the grid is from a study."""
        return Problem(what) if self.source is None else self.source.problem(path, what)


@dataclass(frozen=True)
class Cell:
    """One run of a grid: its case, varied values and seed, and the overrides that set them."""

    case: str
    values: Values
    seed: int
    sets: tuple[str, ...]

    @property
    def place(self) -> Place:
        """The case and the varied values of the cell; cells that differ only in the seed have the same."""
        return self.case, self.values

    @property
    def words(self) -> str:
        """A description of the cell for people."""
        return ", ".join(
            [*filter(None, [self.case]), *(f"{path}={value}" for path, value in self.values), f"seed={self.seed}"]
        )


def _as_typed(error: InputError, cell: Cell) -> InputError:
    """Return the error of a cell with the options `--vary PATH` in place of the overrides that they stand for."""
    options = {f"--set {path}={value}": f"--vary {path}" for path, value in cell.values}
    return ScenarioError([replace(each, file=options.get(each.file, each.file)) for each in problems_in(error)])


def cells_of(plan: GridPlan, first_seed: int, shared: Sequence[str] = ()) -> Iterator[Cell]:
    """Yield all cells (single runs) of a grid, with seeds from `first_seed` on.

    The overrides in `shared` come before a cell's own ones. Raises ScenarioError if a case or a value sets the seed.
    """
    if problems := list(_own_seeds(plan)):
        raise ScenarioError(problems)
    for case, sets in plan.cases.items():
        for combination in product(*plan.vary.values()):
            values = tuple(zip(plan.vary, combination, strict=True))
            for seed in range(first_seed, first_seed + plan.seeds):
                varied = [override for name, value in values for override in plan.vary[name][value]]
                yield Cell(case, values, seed, (*shared, *sets, *varied, f"seed={seed}"))


def _own_seeds(plan: GridPlan) -> Iterator[Problem]:
    """Yield a problem for each varied key, and each case, that sets the seed: a grid counts its seeds itself."""
    what = "the seeds are counted, from the scenario's `seed` on"
    for name, values in plan.vary.items():
        if any(each.startswith("seed=") for sets in values.values() for each in sets):
            told = f"{what}: give {'`seeds: N`' if plan.source else '--seeds N'} in place of values"
            yield plan.problem(("vary", name), told) if plan.source else Problem(told, file=f"--vary {name}")
    for case, sets in plan.cases.items():
        if any(each.startswith("seed=") for each in sets):
            yield plan.problem(("cases", case), f"{what}, alike for all cases: give `seeds: N` in their place")


def split_values(text: str) -> list[str]:
    """Split `a,b,{kind: c, d: 1}` at commas outside brackets and quotes."""
    parts, depth, quote, current = [], 0, "", ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "{[":
            depth += 1
        elif char in "}]":
            depth -= 1
        elif char == "," and not depth:
            parts.append(current.strip())
            current = ""
            continue
        current += char
    parts.append(current.strip())
    return parts


def each_value(path: str, values: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return, for each value of a varied path, the overrides that set it: a list with the one override `path=value`."""
    return {value: [f"{path}={value}"] for value in values}


def parse_vary(text: str) -> tuple[str, list[str]]:
    """Return the path and the values in `path=v1,v2,...`. Raises InputError for any other text."""
    path, equals, values = text.partition("=")
    found = split_values(values)
    if not equals or not path.strip() or not all(found):
        raise InputError(f"--vary {text}: expected path=value,value,..., like links.default.loss=0,0.05,0.1")
    return path.strip(), found


@dataclass(frozen=True, slots=True)
class AxisPositions:
    """The positions of values on a plot's axis.

    Attributes:
        at: the position of each value, by its text.
        ordered: whether the values are numbers, times, rates or sizes, so that lines may join their points.
        labels: whether the axis shows the values' texts.
    """

    at: dict[str, float]
    ordered: bool
    labels: bool


def places_of(texts: Sequence[str]) -> AxisPositions:
    """Return the positions on a plot's axis of varied values, given as `texts` in the order of the grid."""
    for number, read in enumerate(_READERS):
        try:
            return AxisPositions({text: read(text) for text in texts}, ordered=True, labels=number > 0)
        except ValueError:
            continue
    return AxisPositions(
        {text: float(index) for index, text in enumerate(dict.fromkeys(texts))}, ordered=False, labels=True
    )


def _plain(text: str) -> float:
    return parse_probability(text) if text.endswith("%") else float(text)


_READERS: tuple[Callable[[str], float], ...] = (
    _plain,
    lambda text: parse_time_ns(text) / 1e9,
    lambda text: float(parse_rate_bps(text)),
    lambda text: float(parse_size_bytes(text)),
)


def is_study(file: Path) -> bool:
    """Return whether a file is a study and not a scenario. Raises ScenarioError if it can't be read."""
    return is_study_document(document_of(file, str(file)))


class StudyGrids(NamedTuple):
    """The grids of a study, and the mistakes in its form; if there are any, the grids can only be checked further."""

    plans: list[GridPlan]
    problems: list[Problem]


def load_study(file: Path, folder: Path) -> list[GridPlan]:
    """Return the grids of a study, and write their scenarios to `folder`.

    Modules of the user's own lie beside the study. Raises ScenarioError with every mistake in the study's form.
    """
    plans, problems = read_study(file, folder)
    if problems:
        raise ScenarioError(problems)
    return plans


def read_study(file: Path, folder: Path) -> StudyGrids:
    """Return the grids of a study, as `load_study` does, and the mistakes in the study's form in place of an error.

    A grid whose cells can't be checked, because too much of its form is wrong, has no cases. Raises ScenarioError if
    the file can't be read.
    """
    document = document_of(file, str(file))
    form = read_form(document, str(file.parent))
    sweeps = form.study.sweeps if form.study else {}
    with writing(folder, more=OTHER_OUT):
        folder.mkdir(parents=True, exist_ok=True)
    (folder / ORIGIN).write_text(dump_json({"directory": str(file.resolve().parent)}) + "\n", encoding="utf-8")
    plans = [_plan(name, sweep, folder, document) for name, sweep in sweeps.items()]
    return StudyGrids([replace(plan, cases={}) if plan.name in form.partial else plan for plan in plans], form.problems)


def _plan(name: str, sweep: Sweep, folder: Path, study: Document) -> GridPlan:
    scenario, beside = folder / f"{name}.yaml", str(Path(study.file).parent)
    scenario.write_text(dump_json(sweep.scenario, indent=1) + "\n", encoding="utf-8")
    vary = {
        name: _overrides(values, sweep, beside)
        if isinstance(values, dict)
        else each_value(name, [written(value) for value in values])
        for name, values in sweep.vary.items()
    }
    cases, source = _overrides(sweep.cases, sweep, beside) or {"": []}, GridSource(study, name, scenario)
    figures = [
        each if "log" in each.model_fields_set else each.model_copy(update={"log": each.y in LOGS})
        for each in sweep.figures
    ]
    return GridPlan(name, scenario, cases, vary, sweep.seeds, figures, LEARNING, source, sweep.title)


def _overrides(cases: Cases, sweep: Sweep, directory: str) -> dict[str, Sequence[str]]:
    return {case: [each.text for each in overrides_of(sets, sweep.scenario, directory)] for case, sets in cases.items()}
