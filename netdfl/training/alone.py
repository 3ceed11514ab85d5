"""Sequential local rounds: the service for tasks without anything to batch, free of torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from netdfl.core.types import Scalar

CallOutcome: TypeAlias = tuple[object, Exception | None]
"""The return value of a call, or the error that it raised."""


def outcome_of(call: Callable[[], object]) -> CallOutcome:
    """Run `call` and return its outcome."""
    try:
        return call(), None
    except Exception as error:
        return None, error


def one_by_one(calls: Sequence[Callable[[], object]]) -> list[CallOutcome]:
    """Run the calls one after the other, in this thread; return their outcomes."""
    return [outcome_of(call) for call in calls]


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class SequentialService:
    """A `Service` that computes each call by itself."""

    def compute(self, calls: Sequence[Callable[[], object]]) -> list[CallOutcome]:
        """Return the outcome of each call, in order."""
        return one_by_one(calls)

    def summary(self) -> Mapping[str, Scalar]:
        """Return the chosen way of computing, for the record."""
        return {"batching": "exact", "threads": cores(), "ways": ["alone"]}

    def close(self) -> None:
        """Do nothing: there are no threads to stop."""
