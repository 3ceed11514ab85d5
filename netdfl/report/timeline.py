"""What happened when, drawn: events by node, and what the schedule did to links below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from netdfl.report.bands import MOST_BANDS, Band, draw_bands, shade
from netdfl.report.figures import BAD, COLORS, MOST_KINDS, MOST_LETTERS, STYLE, Mark, new_canvas, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_timeline(marks: Sequence[Mark], num_nodes: int, bands: Sequence[Band] = ()) -> str:
    """Draw events over time, a row per node, below them a row for the fleet if it has any, and what links did."""
    with rc_context(STYLE):
        shown, fleet = marks[:MOST_KINDS], -max(1.0, 0.05 * num_nodes)
        size = (10.6, min(4.5, max(1.4 + 0.12 * num_nodes, 0.6 + 0.18 * len(shown))))
        canvas, axes, below = _two_axes(size, len(bands[:MOST_BANDS]))
        for number, mark in enumerate(shown):
            shape, color = "oXsD^vP*"[number % 8], BAD if mark.kind in ("died", "crash") else COLORS[number % 6]
            style: dict[str, Any] = {
                "label": mark.kind[:MOST_LETTERS],
                "alpha": 0.8,
                "linewidth": 0,
                "rasterized": len(mark.times_s) > 2000,
            }
            rows = [fleet if node == -1 else node for node in mark.nodes]
            axes.scatter(mark.times_s, rows, s=26, c=color, marker=shape, **style)
        lowest = 1.7 * fleet if any(-1 in mark.nodes for mark in marks) else -0.7
        times = [time for band in bands for span in band.spans for time in span if time is not None]
        axes.set(ylabel="node", ylim=(lowest, num_nodes - 0.3))
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]), right=max([axes.get_xlim()[1], *times]))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        if lowest < fleet:
            ticks = [tick for tick in axes.get_yticks() if 0 <= tick < num_nodes]
            axes.set_yticks([fleet, *ticks], ["fleet", *(f"{tick:.0f}" for tick in ticks)])
        if shown:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        shade(axes, bands)
        if below is not None:
            draw_bands(below, bands)
        (below or axes).set_xlabel("seconds since the start")
        return to_svg(canvas)


def _two_axes(size: tuple[float, float], rows: int) -> tuple[Canvas, Axes, Axes | None]:
    """A figure with axes of `size`, and below them, where there are `rows`, others with the same axis of time."""
    if not rows:
        return *new_canvas(size), None
    height = 0.22 * rows
    canvas = Canvas(figsize=(size[0], size[1] + height + 0.2), layout="constrained")
    axes, below = canvas.subplots(2, 1, sharex=True, height_ratios=(size[1], height))
    return canvas, axes, below
