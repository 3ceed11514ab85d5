"""Figures as inline SVG: text stays text, and takes its color from the page, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#010203"  # stands for the page's text color; no figure uses it otherwise
COLORS = ("#2f7ed8", "#e07b00", "#2a9d5c", "#c2417c", "#8a63d2", "#8c6d46")
BAD = "#d33f3f"
MOST_KINDS, MOST_LETTERS = 20, 40  # of events, in a legend
SMALL, WIDE = (5.2, 2.9), (10.6, 3.2)

STYLE: dict[Any, object] = {  # Any: matplotlib's stubs list every key
    "svg.fonttype": "none",
    "svg.hashsalt": "netdfl",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.parse_math": False,  # names come from files: a dollar sign in them is one
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.facecolor": "none",
    "figure.dpi": 150,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Values over rounds, with a band from `low` to `high` where there is a spread."""

    name: str
    rounds: Sequence[int]
    values: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Events of one kind: their times in seconds and their nodes (-1 for the fleet)."""

    kind: str
    times_s: Sequence[float]
    nodes: Sequence[int]


def draw_curves(
    curves: Sequence[Curve], label: str, *, log: bool = False, from_zero: bool = False, percent: bool = False
) -> str:
    """Draw curves over rounds; `log` needs positive values, `from_zero` shows the axis down to 0.

    `percent` labels shares as percentages.
    """
    with rc_context(STYLE):
        canvas, axes = new_canvas(SMALL)
        for color, curve in zip(COLORS, curves, strict=False):
            marker = "o" if len(curve.rounds) < 3 else None
            axes.plot(curve.rounds, curve.values, color=color, label=curve.name, linewidth=1.5, marker=marker)
            if curve.low is not None and curve.high is not None:
                axes.fill_between(curve.rounds, curve.low, curve.high, color=color, alpha=0.2, linewidth=0)
        axes.set(xlabel="round", ylabel=label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.5)))
        if percent:
            axes.yaxis.set_major_formatter(PercentFormatter(1))
        if from_zero:
            axes.set_ylim(0, 1.1 * max(max(curve.values) for curve in curves))
        if len(curves) > 1:
            axes.legend()
        return to_svg(canvas)


def draw_bars(parts: Mapping[str, NDArray[np.float64]], x_label: str, label: str, *, legend: bool = True) -> str:
    """Draw one stacked bar per node; `parts` maps a part's name to its height at each node."""
    colors = colormaps["tab20"].colors if len(parts) > len(COLORS) else COLORS  # type: ignore[attr-defined]
    with rc_context(STYLE | {"axes.grid.axis": "y"}):
        canvas, axes = new_canvas(WIDE)
        bottom = np.zeros(len(next(iter(parts.values()))))
        for number, (name, heights) in enumerate(parts.items()):
            axes.bar(range(len(bottom)), heights, 0.85, bottom, color=colors[number % len(colors)], label=name)
            bottom += heights
        axes.set(xlabel=x_label, ylabel=label, xlim=(-0.6, len(bottom) - 0.4))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=20, integer=True))
        if legend:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), ncols=1 + (len(parts) - 1) // 10)
        return to_svg(canvas)


def draw_matrix(matrix: NDArray[np.float64], x_label: str, y_label: str, label: str, *, wide: bool = False) -> str:
    """Draw a heat map of a 2-d array; cells that are NaN stay empty."""
    with rc_context(STYLE | {"axes.grid": False}):
        canvas, axes = new_canvas(WIDE if wide else (5.2, 4.2))
        image = axes.imshow(matrix, cmap="viridis", vmin=0, aspect="auto" if wide else "equal", interpolation="nearest")
        bar = canvas.colorbar(image, ax=axes, label=label, shrink=0.9)
        bar.outline.set_visible(False)
        axes.set(xlabel=x_label, ylabel=y_label)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        return to_svg(canvas)


def new_canvas(size: tuple[float, float]) -> tuple[Canvas, Axes]:
    """Make a figure of `size` in inches with one pair of axes; use it within `rc_context(STYLE)`."""
    canvas = Canvas(figsize=size, layout="constrained")
    return canvas, canvas.add_subplot()


def to_svg(canvas: Canvas) -> str:
    """Render as an SVG element that fits into a page: no prolog, no fixed size, no ids of groups."""
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = buffer.getvalue()
    head, body = re.split(r"(?<=>)", text[text.index("<svg") :], maxsplit=1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return head + re.sub(r'<g id="[^"]*"', "<g", body).replace(INK, "currentColor")
