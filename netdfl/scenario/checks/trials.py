"""The steps of a trial of a component that a user wrote (a part), and the findings that a trial ends with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from netdfl.core.errors import OwnPartError
from netdfl.core.rng import Key, Streams
from netdfl.scenario.checks.finding import CheckFinding
from netdfl.scenario.model.contracts import broken, misfit
from netdfl.scenario.model.fields import Function
from netdfl.scenario.model.parts import Part, own_parts
from netdfl.scenario.model.schema import Scenario

T = TypeVar("T")


def tried(
    scenario: Scenario, trials: Mapping[str, Callable[[Part, T], CheckFinding | None]], context: T
) -> Iterator[CheckFinding]:
    """Yield the mistakes of the components that a user wrote, of the kinds in `trials`, each tried with `context`."""
    for path, part in own_parts(scenario):
        try:
            if part.own in trials and (noticed := trials[part.own](part, context)) is not None:
                yield noticed._replace(path=path)
        except OwnPartError as exc:
            yield CheckFinding(path, exc.what, exc.remedy)


@contextmanager
def using(part: Part, doing: str) -> Iterator[None]:
    """Raise OwnPartError, which blames the user's `part`, for any exception in the `with` block.

    `doing` says in words when it happened.
    """
    try:
        yield
    except OwnPartError:
        raise
    except Exception as exc:
        raise broken(part.own, part.kind, exc, function_of(part), f" {doing}") from exc


def require(holds: bool, part: Part, did: str, remedy: str = "") -> None:
    """Raise OwnPartError, which says what the user's `part` `did` wrong, unless `holds` is true."""
    if not holds:
        raise misfit(part.own, part.kind, did, function_of(part), remedy)


def require_again(same: bool, part: Part, remedy: str = "draw from streams: streams.rng('a name', round)") -> None:
    """Raise OwnPartError unless the user's `part` gave the `same` result twice.

    Each node and machine calls the part for itself, and their results must agree.
    """
    require(same, part, "gives something else when it is asked again, or in another order", remedy)


def function_of(part: Part) -> Function:
    """Return the user's function that makes `part`."""
    function = type(part).function
    assert function is not None
    return function


def seeded_by(*key: Key) -> AbstractContextManager[object]:
    """Return a context in which the global random generators are seeded by `key`, as a run does for a user's parts."""
    import torch

    from netdfl.training.drawing import seeded

    return seeded(Streams(0).integer("trial", *key), torch.device("cpu"))
