"""What counts as found, and its cause, so that many runs with one bug are one finding, whichever nodes it hit.

Beside the verdict, predicates of one's own over a run say what counts.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from netdfl.core.errors import InputError
from netdfl.core.types import Edge
from netdfl.diagnosis.finding import Finding
from netdfl.explore.execute import ExploredRun
from netdfl.record.judge import WELL
from netdfl.scenario.model.plugins import find_own, place_of, places, said
from netdfl.scenario.model.schema import Scenario

_NETDFL = Path(__file__).resolve().parents[1]
_MARKS = (
    "notice", "answer", "mailbox", "has finished", "is past that round", "are past that round", "does not return",
    "do not return", "crashed", "paused", "the link was down", "the links were down", "cut off", "damaged",
    "outside any wait", "took it before it crashed", "was down",
)  # fmt: skip
"""Words of a diagnosis that tell one kind of a stall from another."""


class Cause(NamedTuple):
    """What is equal for equal failures: `key`; and what this one was, in a sentence."""

    key: str
    text: str


def cause_of(run: ExploredRun, predicates: Sequence[Predicate] = (), *, verdict: bool = True) -> Cause | None:
    """Why `run` is a finding: it broke netdfl, a predicate holds or raises, or its verdict is none that ends well."""
    if run.error is not None:
        return _broken(run.error)
    for predicate in predicates:
        try:
            if told := predicate(run):
                return Cause(f"predicate {predicate.name}: {_plain(told)}", told)
        except PredicateError as error:
            return Cause(f"raised {predicate.name}", str(error))
    if not verdict or run.verdict in WELL:
        return None
    return _stall(run) or _figures(run)


def is_raised(cause: Cause) -> bool:
    """Whether it is that a predicate raised."""
    return cause.key.startswith("raised ")


def _broken(error: BaseException) -> Cause:
    """By the exception and the innermost function of netdfl's that it passed."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(_NETDFL)]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "outside netdfl"
    return Cause(f"broke {type(error).__name__} {where}", f"netdfl itself broke in {where}: {error!r}")


def _stall(run: ExploredRun) -> Cause | None:
    """By the first stall that nothing ends: its kind, who waits for whom, and whether it is in the first or last round.

    Who waits for whom is told up to the names of the nodes, and how many there are of one sort.
    """
    left = [stall for stall in run.stalls if not stall.over and stall.permanent]
    if not left or not any("stalled at the end" in r or r.startswith("deadlock") for r in run.reasons):
        return None
    first = min(left, key=lambda stall: (stall.began_ns, stall.round, stall.roots))
    marks = ", ".join(mark for mark in _MARKS if mark in first.what)
    when = _when(first, run.scenario.rounds)
    return Cause(f"stall {first.cause.value} [{shape(first.witness)}] {when}: {marks}", first.what)


def _when(stall: Finding, rounds: int) -> str:
    return "last" if stall.round == rounds - 1 else "first" if stall.round == 0 else "between"


def shape(edges: Sequence[Edge]) -> str:
    """A graph of waits up to the names of its nodes and how many of a sort there are: which sorts of nodes it has."""
    out, into = {src for src, _ in edges}, {dst for _, dst in edges}
    sorts = {(node in out, node in into) for node in {*out, *into}}
    words = {(True, False): "waiter", (False, True): "awaited", (True, True): "both"}
    return " ".join(words[sort] for sort in sorted(sorts))


def _figures(run: ExploredRun) -> Cause:
    """By what the verdict's reasons say, without numbers; the gravest is the first."""
    first = run.reasons[0] if run.reasons else "the verdict is unknown"
    return Cause(f"verdict {_plain(first)}", first)


def _plain(text: str) -> str:
    """A sentence without its numbers, lists of numbers as one."""
    plain = re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?%?", "#", text)
    return re.sub(r"#((,? and |, |->)#)+", "#", plain)[:200]


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
    passed = traceback.extract_tb(error.__traceback__)
    return f"{passed[-1].filename}:{passed[-1].lineno}" if passed else "an unknown place"


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
