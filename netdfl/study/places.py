"""Where the values of a grid stand on an axis: numbers and quantities by their size, everything else side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from netdfl.core.units import parse_probability, parse_rate_bps, parse_size_bytes, parse_time_ns


@dataclass(frozen=True, slots=True)
class Places:
    """The values of an axis, by how they are written, and where each stands.

    `ordered`: they are numbers, or times, rates, sizes: a line between two of them means something. Of categories it
    does not. `labels`: whether the axis shows the values as they are written.
    """

    at: dict[str, float]
    ordered: bool
    labels: bool


def places_of(texts: Sequence[str]) -> Places:
    """Where the values `texts`, in the order of the grid, stand."""
    for number, parse in enumerate(_PARSERS):
        try:
            return Places({text: parse(text) for text in texts}, ordered=True, labels=number > 0)
        except ValueError:
            continue
    return Places({text: float(index) for index, text in enumerate(dict.fromkeys(texts))}, ordered=False, labels=True)


def _plain(text: str) -> float:
    return parse_probability(text) if text.endswith("%") else float(text)


_PARSERS: tuple[Callable[[str], float], ...] = (
    _plain,
    lambda text: parse_time_ns(text) / 1e9,
    lambda text: float(parse_rate_bps(text)),
    lambda text: float(parse_size_bytes(text)),
)
