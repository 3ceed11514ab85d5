"""What counts as found, beside the verdict: predicates of one's own over a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from netdfl.core.errors import InputError
from netdfl.explore.execute import ExploredRun
from netdfl.scenario.model.plugins import find_own, place_of, places, said
from netdfl.scenario.model.schema import Scenario

VERDICT = "verdict"


@dataclass(frozen=True)
class Predicate:
    """A callable `(run) -> bool | str`: true, or in words, where a run is what is looked for."""

    name: str
    holds: Callable[[ExploredRun], object]
    directory: str

    def __call__(self, run: ExploredRun) -> str:
        """What it says of `run`; empty where it does not hold. Raises PredicateError."""
        try:
            found = self.holds(run)
        except Exception as error:
            raise PredicateError(self.name, error, self.directory) from error
        if not found:
            return ""
        return found if isinstance(found, str) else f"{self.name} holds"


class PredicateError(Exception):
    """A predicate raised."""

    def __init__(self, name: str, error: Exception, directory: str) -> None:
        """Name the line of `error`."""
        place = place_of(error, places(directory)) or _last_line(error)
        super().__init__(f"the predicate {name} raised {type(error).__name__} at {place}: {said(error)}")


def _last_line(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "an unknown place" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def find_predicates(scenario: Scenario, names: Sequence[str] | None = None) -> list[Predicate]:
    """The predicates of the scenario's `explore.find`. Raises InputError where one is not to be found."""
    directory = str(scenario.file.parent) if scenario.file is not None else "."
    return [_find(name, directory) for name in names or scenario.explore.find if name != VERDICT]


def _find(name: str, directory: str) -> Predicate:
    if ":" not in name:
        raise InputError(f"explore.find: {name!r} is no predicate; write {VERDICT}, or package.module:callable")
    try:
        found = find_own(name, directory)
    except Exception as error:
        place = place_of(error, places(directory))
        where = f" at {place}" if place else ""
        raise InputError(f"explore.find: {name} can't be imported{where}: {said(error) or error!r}") from error
    if not callable(found):
        raise InputError(f"explore.find: {name} is a {type(found).__name__}; name a callable that takes a run")
    return Predicate(name, found, directory)
