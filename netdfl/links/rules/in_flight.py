"""What is in flight inside a stage, so that a change can take it back."""

from __future__ import annotations

from collections.abc import Sequence

from netdfl.links.rules.base import Dropped, Transit


class Flight:
    """Units with their times of departure; forgets those that left, at amortised constant cost."""

    __slots__ = ("_limit", "_units")

    def __init__(self) -> None:
        self._units: list[tuple[int, Transit]] = []
        self._limit = 64

    def add(self, unit: Transit, at_ns: int, now_ns: int) -> None:
        """`unit` entered at `now_ns` and leaves at `at_ns`."""
        self._units.append((at_ns, unit))
        if len(self._units) > self._limit:
            self._units = [entry for entry in self._units if entry[0] > now_ns]
            self._limit = 64 + 2 * len(self._units)

    def drop(self, now_ns: int, reason: str) -> Sequence[Dropped]:
        """Drop everything that has not left by `now_ns`, in order of entry."""
        units, self._units = self._units, []
        return [Dropped(unit, reason) for at_ns, unit in units if at_ns > now_ns]
