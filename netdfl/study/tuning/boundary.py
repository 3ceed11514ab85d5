"""The search for the smallest of ascending values that reaches a target, if a run's metric is subject to chance.

The search relies on this: a larger value does not make the metric worse. Decisions that contradict it are in
`Boundary.contradiction`.

Why: Between the values that surely miss the target and those that surely reach it lie some that a few runs can't
decide. So two boundaries are searched, each by halving, and the answer is a value with the interval between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Decision: TypeAlias = Literal["reaches", "misses", "open"]
"""Whether a value reaches the target: with the required confidence it does, it does not, or the runs leave it open."""
Looked: TypeAlias = Mapping[int, Decision]
"""The decisions so far, by the value's index among the ascending values."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The two boundaries of a search, as indices of values.

    Attributes:
        reaches: the smallest value that reaches the target and above which no value misses it; None if there is none.
        misses: the largest value that misses the target; None if there is none.
        contradiction: a smaller value that reaches the target and a larger one that misses it; None if there are none.
    """

    reaches: int | None
    misses: int | None
    contradiction: tuple[int, int] | None = None


def boundary_of(looked: Looked) -> Boundary:
    """Return the boundaries of the search that follow from the decisions on values so far."""
    misses = max((place for place, decision in looked.items() if decision == "misses"), default=None)
    reaching = [place for place, decision in looked.items() if decision == "reaches"]
    beyond = [place for place in reaching if misses is None or place > misses]
    below = [place for place in reaching if misses is not None and place < misses]
    contradiction = (max(below), misses) if below and misses is not None else None
    return Boundary(min(beyond, default=None), misses, contradiction)


def search(
    num_values: int, look: Callable[[Sequence[int]], Mapping[int, Decision]], at_a_time: int = 1
) -> dict[int, Decision]:
    """Find the smallest value that reaches the target and the largest that misses it, by running values.

    Return the decision on each value that was run, by its index. `look` takes the ascending indices of values to run,
    and returns their decisions. After the first and the last value, it gets at most `at_a_time` indices in a call.
    """
    looked: dict[int, Decision] = {}
    places: Sequence[int] = sorted({0, num_values - 1})
    while places:
        looked |= look(places)
        places = _next(looked, at_a_time)
    return looked


def _next(looked: Looked, at_a_time: int) -> list[int]:
    """Return the indices of at most `at_a_time` values to run next; none if both boundaries are known.

    `looked` has the decisions so far.
    """
    ends = boundary_of(looked)
    gaps = []
    if ends.reaches is not None:
        gaps.append((max((place for place in looked if place < ends.reaches), default=ends.reaches), ends.reaches))
    above = [place for place in looked if ends.misses is not None and place > ends.misses]
    if ends.misses is not None and above:
        gaps.append((ends.misses, min(above)))
    for low, high in gaps:
        if places := _between(low, high, at_a_time):
            return places
    return []


def _between(low: int, high: int, count: int) -> list[int]:
    """Return at most `count` indices strictly between `low` and `high`, evenly spaced."""
    inside = high - low - 1
    num = min(count, inside)
    return [low + (high - low) * (place + 1) // (num + 1) for place in range(num)]
