"""A rate with its interval."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

Z = 1.959964
"""The quantile of the normal distribution for an interval of 95 %."""


class Rate(NamedTuple):
    """`hits` of `runs`, with Wilson's interval of 95 %."""

    hits: int
    runs: int
    low: float
    high: float

    def __str__(self) -> str:
        """`12 of 400 (3.0 %, 1.7 to 5.2)`."""
        share = self.hits / max(1, self.runs)
        return f"{self.hits} of {self.runs} ({100 * share:.3g} %, {_percent(self.low)} to {_percent(self.high)})"


def _percent(share: float) -> str:
    """Two digits, or 100."""
    return f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.0f}"


def wilson(hits: int, runs: int) -> Rate:
    """The rate of `hits` in `runs` (Wilson 1927); from 0 to 1 where there was no run."""
    if not runs:
        return Rate(hits, runs, 0.0, 1.0)
    share, z2 = hits / runs, Z * Z
    middle = (share + z2 / (2 * runs)) / (1 + z2 / runs)
    half = Z / (1 + z2 / runs) * sqrt(share * (1 - share) / runs + z2 / (4 * runs * runs))
    return Rate(hits, runs, max(0.0, middle - half), min(1.0, middle + half))
