"""Columns of numbers, shortened to the digits that a picture shows and made ready for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Made: TypeAlias = dict[str, Any]
"""A part of the page's data."""
Plain: TypeAlias = list[float | int | None]
"""Numbers as JSON has them: None is one that there is not."""

FIGURE, TIME = 4, 7
"""Digits of a figure, and of a time."""


def shorten(values: Floats | Sequence[float], digits: int = FIGURE) -> Plain:
    """Numbers with so many digits, whole ones as integers; what is not finite is None."""
    given = np.asarray(values, dtype=float)
    size = np.abs(given)
    usual = (size > SMALLEST) & (size < LARGEST)
    # An exact integer over an exact power of ten is the number that its decimal digits stand for.
    powers = np.clip(digits - 1 - np.floor(np.log10(np.where(usual, size, 1.0))), 0, MOST_POWER)
    scaled = np.where(usual, given, 0.0) * 10.0**powers
    cut = np.rint(scaled) / 10.0**powers
    rare = (~usual & (given != 0)) | (powers <= 0) | (powers >= MOST_POWER)
    made: Plain = [int(value) if value.is_integer() else value for value in cut.tolist()]
    for place in np.flatnonzero(rare).tolist():
        made[place] = _short(float(given[place]), digits)
    return made


SMALLEST, LARGEST, MOST_POWER = 1e-12, 1e12, 15


def _short(value: float, digits: int) -> float | int | None:
    if not math.isfinite(value):
        return None
    made = float(f"{value:.{digits}g}")
    return int(made) if made.is_integer() and abs(made) < 1e15 else made


def whole(values: Floats | Sequence[float]) -> Plain:
    """Counts and numbers of nodes, exactly."""
    return [int(value) if math.isfinite(value) else None for value in np.asarray(values, dtype=float).tolist()]


class Words:
    """Texts that stand in a column many times: each is kept once, its place stands for it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """The place of a text among those that were met."""
        if text not in self._places:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]

    def places(self, texts: Iterable[str]) -> list[int]:
        """The places of many."""
        return [self.place(text) for text in texts]
