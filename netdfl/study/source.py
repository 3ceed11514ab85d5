"""The places in a study's file from which the parts of its grids come, so that mistakes are reported there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

from netdfl.core.errors import InputError, Problem, ScenarioError
from netdfl.scenario.loading.document import Document, SourcePlace, parse
from netdfl.study.merged import CaseOverride, overrides_of, written


class _WrittenOverride(NamedTuple):
    """An override that a case or a varied value of a study stands for, and the places of its path and of its value."""

    override: CaseOverride
    key_place: SourcePlace
    value_place: SourcePlace

    def place_of(self, problem: Problem) -> SourcePlace:
        """Return the place of the path if the mistake is an unknown key of it, else the place of the value."""
        unknown = [f"unknown key {key!r}" for key in self.override.path.split(".")]
        return self.key_place if problem.what in unknown else self.value_place


@dataclass(frozen=True)
class GridSource:
    """The part of a study's file that describes one grid.

    Attributes:
        study: the study as written.
        name: the name of the grid, a key of the study's `sweeps`.
        scenario: the scenario file that netdfl wrote from the grid's `scenario`.
    """

    study: Document
    name: str
    scenario: Path

    def problem(self, path: Sequence[str | int], what: str) -> Problem:
        """Create a `Problem` at `path`, which is relative to the grid."""
        return self.study.problem(("sweeps", self.name, *path), what)

    def moved(self, error: InputError, case: str, values: Sequence[tuple[str, str]]) -> InputError:
        """Return the error of a cell with places in the study's file, in place of lines of `scenario` and of overrides.

        `case` and `values` are the case and the varied values of the cell.
        """
        if not isinstance(error, ScenarioError):
            return error
        overrides = {f"--set {each.override.text}": each for each in self._overrides(case, values)}
        return ScenarioError([self._moved(problem, overrides) for problem in error.problems])

    def misspelled(self, problems: Sequence[Problem]) -> list[str]:
        """Return the varied names that one of `problems` is about, because the scenario has no such key."""
        places = {(each.line, each.column) for each in problems}
        varied = cast(Any, self.study.data)["sweeps"][self.name].get("vary", {})
        return [name for name in varied if self._place("vary", name, key=True)[1:] in places]

    def _moved(self, problem: Problem, overrides: Mapping[str, _WrittenOverride]) -> Problem:
        override = overrides.get(problem.file)
        place = None if override is None else override.place_of(problem)
        if problem.line and Path(problem.file).resolve() == self.scenario.resolve():
            place = self._in_scenario.get((problem.line, problem.column))
        return problem if place is None else replace(problem, **place._asdict())

    @cached_property
    def _in_scenario(self) -> Mapping[tuple[int, int], SourcePlace]:
        """The places in the study of the keys and values of the written scenario, by line and column there."""
        made = parse(self.scenario.read_text(encoding="utf-8"), str(self.scenario))
        found: dict[tuple[int, int], SourcePlace] = {}
        for places, key in ((made.keys, True), (made.values, False)):
            for path, place in places.items():
                found[place.line, place.column] = self._place("scenario", *path, key=key)
        return found

    def _overrides(self, case: str, values: Sequence[tuple[str, str]]) -> Iterator[_WrittenOverride]:
        """Yield the overrides of a cell."""
        grid = cast(Any, self.study.data)["sweeps"][self.name]
        named: list[tuple[str, ...]] = [("cases", case)] if case else []
        for path, text in values:
            if isinstance(choices := grid["vary"][path], Mapping):
                named.append(("vary", path, text))
            else:
                index = [written(value) for value in choices].index(text)
                key_place = self._place("vary", path, key=True)
                yield _WrittenOverride(CaseOverride((path,), path, text), key_place, self._place("vary", path, index))
        for keys in named:
            sets = grid
            for key in keys:
                sets = sets[key]
            for each in overrides_of(sets, grid["scenario"], str(Path(self.study.file).parent)):
                place = self._place(*keys, *each.way, key=True)
                yield _WrittenOverride(each, place, place)

    def _place(self, *path: str | int, key: bool = False) -> SourcePlace:
        return self.study.place(("sweeps", self.name, *path), key=key)
