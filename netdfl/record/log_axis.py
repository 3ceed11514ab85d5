"""Labels of a plot's logarithmic axis: plain numbers, or numbers with a unit, between powers of ten too."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.axis import Axis
from matplotlib.ticker import EngFormatter, LogFormatterSciNotation

PLAIN = (1e-4, 1e6)
"""The range of numbers whose labels are written without a power of ten."""

ALL_BELOW = (1.0, 0.6)
"""The lengths of an axis, in powers of ten, below which some and below which all digits between powers have labels."""


def label_logs(axis: Axis, unit: str = "") -> None:
    """Label a logarithmic axis: 0.35 for 3.5 × 10⁻¹, and 350 kB where the values have the unit `B`."""
    words = EngFormatter(unit) if unit else None
    axis.set_major_formatter(_LogLabels(words))
    axis.set_minor_formatter(_LogLabels(words))


class _LogLabels(LogFormatterSciNotation):
    """The labels of powers of ten and, if the axis is short, of the digits between them."""

    def __init__(self, words: Callable[[float], str] | None) -> None:
        super().__init__(minor_thresholds=ALL_BELOW)
        self._words = words

    def __call__(self, x: float, pos: int | None = None) -> str:
        text = super().__call__(x, pos)
        if not text:
            return ""
        if self._words is not None:
            return self._words(x)
        return f"{x:.6g}" if PLAIN[0] <= x < PLAIN[1] else text
