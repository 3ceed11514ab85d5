"""Sequential computation of nodes' local rounds, for tasks that can't be computed together; needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from netdfl.core.process import cores
from netdfl.core.types import Scalar

CallOutcome: TypeAlias = tuple[object, BaseException | None]
"""The return value of a call, or the error that it raised."""


def outcome_of(call: Callable[[], object]) -> CallOutcome:
    """Run `call`; return (its result, None), or (None, the exception that it raised), even SystemExit.

    An interrupt passes.
    """
    try:
        return call(), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return None, error


def one_by_one(calls: Sequence[Callable[[], object]]) -> list[CallOutcome]:
    """Run the calls in turn in this thread; return the result or exception of each."""
    return [outcome_of(call) for call in calls]


class SequentialService:
    """A training service that computes each node's local round by itself, one after another."""

    def compute(self, calls: Sequence[Callable[[], object]]) -> list[CallOutcome]:
        """Compute each call (a node's local round) in turn; return the result or exception of each, in order."""
        return one_by_one(calls)

    def summary(self) -> Mapping[str, Scalar]:
        """Return how local rounds are computed, for the run's record: batching, number of threads, and ways."""
        return {"batching": "exact", "threads": cores(), "ways": ["alone"]}

    def close(self) -> None:
        """Do nothing, because there are no threads to stop."""
