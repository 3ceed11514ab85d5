"""The places in a study's file of what its grids are made of, so that mistakes are reported where they were written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from netdfl.core.errors import InputError, Problem, ScenarioError
from netdfl.scenario.loading.document import Document, SourcePlace, parse


def written(value: object) -> str:
    """Return `value` as text for an override."""
    return value if isinstance(value, str) else json.dumps(value)


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
        """Return the error of a cell with the study's places in the stead of the written scenario's and of overrides'.

        `case` and `values` are those of the cell.
        """
        if not isinstance(error, ScenarioError):
            return error
        overrides = dict(self._overrides(case, values))
        return ScenarioError([self._moved(problem, overrides) for problem in error.problems])

    def _moved(self, problem: Problem, overrides: Mapping[str, SourcePlace]) -> Problem:
        place = overrides.get(problem.file)
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

    def _overrides(self, case: str, values: Sequence[tuple[str, str]]) -> Iterator[tuple[str, SourcePlace]]:
        """Yield the overrides of a cell, as its errors name them, each with its place."""
        grid = cast(Any, self.study.data)["sweeps"][self.name]
        named: list[tuple[str, ...]] = [("cases", case)] if case else []
        for path, text in values:
            if isinstance(choices := grid["vary"][path], Mapping):
                named.append(("vary", path, text))
            else:
                index = [written(value) for value in choices].index(text)
                yield f"--set {path}={text}", self._place("vary", path, index)
        for keys in named:
            sets = grid
            for key in keys:
                sets = sets[key]
            for path, value in sets.items():
                yield f"--set {path}={written(value)}", self._place(*keys, path, key=True)

    def _place(self, *path: str | int, key: bool = False) -> SourcePlace:
        return self.study.place(("sweeps", self.name, *path), key=key)
