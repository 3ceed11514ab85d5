"""The plots of landscapes, for the report."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS = 130
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
"""Okabe and Ito's colors, which color-blind readers can tell apart."""
LEVELS = 12


def draw_lines(places: Sequence[float], losses: Mapping[str, Sequence[float]]) -> bytes:
    """Return a PNG of the loss along one direction, at the positions `places`, with a line for each model."""
    figure = _figure((6.4, 3.6))
    axes = figure.subplots()
    for number, (name, values) in enumerate(losses.items()):
        average = number == 0
        axes.plot(places, values, label=name, color=COLORS[number % len(COLORS)], linewidth=2.2 if average else 1.1)
    axes.axvline(0, color="#999999", linewidth=0.8, zorder=0)
    axes.set(xlabel="place along a direction normalized by filter", ylabel="training loss", yscale=_scale(losses))
    axes.legend(frameon=False)
    return _png(figure)


def draw_planes(places: Sequence[float], losses: Mapping[str, Sequence[Sequence[float]]]) -> bytes:
    """Return a PNG of the loss over a plane, a panel for each model; `places` are positions along each side.

    All panels have one color scale.
    """
    figure = _figure((4.2 * len(losses) + 0.8, 3.9))
    grids = {name: np.log10(np.maximum(np.array(values), 1e-12)) for name, values in losses.items()}
    finite = np.concatenate([grid[np.isfinite(grid)] for grid in grids.values()])
    levels = np.linspace(finite.min(), finite.max() + 1e-9, LEVELS)
    every = figure.subplots(1, len(grids), squeeze=False)[0]
    filled: Any = None
    for axes, (name, grid) in zip(every, grids.items(), strict=True):
        filled = axes.contourf(places, places, grid, levels=levels, cmap="viridis")
        axes.contour(places, places, grid, levels=levels, colors="white", linewidths=0.4, linestyles="solid")
        axes.plot(0, 0, marker="o", color="white", markeredgecolor="black", markersize=6)
        axes.set(title=name, xlabel="first direction", aspect="equal")
    every[0].set(ylabel="second direction")
    bar = figure.colorbar(filled, ax=list(every), label="training loss", shrink=0.85)
    ticks = np.linspace(levels[0], levels[-1], 6)
    bar.set_ticks(ticks.tolist(), labels=[f"{10**tick:.3g}" for tick in ticks])
    return _png(figure)


def _scale(losses: Mapping[str, Sequence[float]]) -> str:
    known = [value for values in losses.values() for value in values if np.isfinite(value) and value > 0]
    return "log" if known and max(known) > 20 * min(known) else "linear"


def _figure(size: tuple[float, float]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DOTS)
    return buffer.getvalue()
