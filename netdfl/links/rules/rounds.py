"""Values by round: how a link's `at_round` acts on the messages of its rounds without a clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class ByRound(Generic[T]):
    """A piecewise constant function of the round; None where the clock's value stands."""

    __slots__ = ("_starts", "_values")

    def __init__(self, pieces: Sequence[tuple[int, T | None]]) -> None:
        """Each piece is (first round, value) and lasts until the next one's first round."""
        self._starts = [start for start, _ in pieces]
        self._values = [value for _, value in pieces]

    def at(self, round: int) -> T | None:
        """The value for a message of `round`."""
        place = bisect_right(self._starts, round)
        return self._values[place - 1] if place else None
