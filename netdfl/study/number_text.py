"""The numbers of a sweep's tables as text for people."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from netdfl.core.units import format_bytes
from netdfl.study.outcome import BYTES, PERCENT, SHARES
from netdfl.study.summary import LEVEL

DIGITS = 3
"""The number of significant digits of a single number, and of the largest number in a column."""
SPREAD = 100
"""The largest ratio of two means of a column whose numbers have the same number of decimals."""
LONGEST = 1e5
"""From this number on, and from 1 / LONGEST downwards, numbers are written with an exponent."""


def number(name: str, value: float, decimals: int | None = None) -> str:
    """Return the `value` of the metric `name` as text, with `decimals` decimals (None: `DIGITS` significant digits).

    Percentages always have one decimal, and bytes a unit.
    """
    if name in PERCENT:
        return f"{100 * value:.1f}%"
    if name in BYTES:
        return format_bytes(round(value))
    return f"{value:.{DIGITS}g}" if decimals is None else f"{value:.{decimals}f}"


def signed(name: str, value: float) -> str:
    """Return a difference in the metric `name` as text, with its sign; for percentages, in points without a unit."""
    if name in PERCENT:
        return f"{100 * value:+.1f}"
    return ("-" if value < 0 else "+") + number(name, abs(value))


def decimals_of(name: str, means: Iterable[float], others: Iterable[float] = ()) -> int | None:
    """Return how many decimals all numbers of a column have; None if each number has its own.

    The largest mean has at least `DIGITS` digits and the smallest at least two, but no number gets more decimals than
    the means and the `others`, such as deviations, need.
    """
    sizes = [abs(mean) for mean in means if mean]
    if name in {*PERCENT, *BYTES, *SHARES} or not sizes or max(sizes) > SPREAD * min(sizes):
        return None
    if max(sizes) >= LONGEST or min(sizes) <= 1 / LONGEST:
        return None
    wanted = max(DIGITS - 1 - _exponent(max(sizes)), DIGITS - 2 - _exponent(min(sizes)), 0)
    return min(wanted, max(map(_num_decimals, [*sizes, *others])))


def _exponent(value: float) -> int:
    return math.floor(math.log10(value))


def _num_decimals(value: float) -> int:
    """Return the number of decimals of a value that is written with `DIGITS` significant digits."""
    found = re.fullmatch(r"-?\d+\.(\d+)", f"{value:.{DIGITS}g}")
    return len(found[1]) if found else DIGITS if "e-" in f"{value:.{DIGITS}g}" else 0


def probability(p: float) -> str:
    """Return a p-value as text of two digits, or of as many as show on which side of `LEVEL` it lies."""
    texts = [f"{p:.{digits}g}" for digits in range(2, 17)]
    return next((text for text in texts if (float(text) < LEVEL) == (p < LEVEL)), texts[-1])
