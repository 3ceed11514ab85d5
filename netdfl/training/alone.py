"""Local rounds one after the other: what `netdfl.training.service` does where nothing is worth more, without torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from netdfl.core.types import Scalar

CallOutcome: TypeAlias = tuple[object, Exception | None]
"""What a call returned, or the error that it raised."""


def outcome_of(call: Callable[[], object]) -> CallOutcome:
    """What `call` gives."""
    try:
        return call(), None
    except Exception as error:
        return None, error


def one_by_one(calls: Sequence[Callable[[], object]]) -> list[CallOutcome]:
    """Each call by itself, in this thread."""
    return [outcome_of(call) for call in calls]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Alone:
    """A `Service` that computes each call by itself."""

    def compute(self, calls: Sequence[Callable[[], object]]) -> list[CallOutcome]:
        """The outcome of each call, in order."""
        return one_by_one(calls)

    def summary(self) -> Mapping[str, Scalar]:
        """What was chosen, to be recorded."""
        return {"batching": "exact", "threads": cores(), "ways": ["alone"]}

    def close(self) -> None:
        """Nothing runs beside it."""
