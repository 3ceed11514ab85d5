"""A sweep's figures: a line for each case with its 95 % confidence intervals, as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from netdfl.core.units import parse_probability
from netdfl.study.plan import Drawn, Values
from netdfl.study.summary import Estimate, Point, estimates

COLORS = ("#2f7ed8", "#e07b00", "#2a9d5c", "#c2417c", "#8a63d2", "#8c6d46", "#3d3d3d", "#00a5a5")
MARKERS = "osD^vP*X"


def draw(points: Sequence[Point], drawn: Drawn, path: Path) -> None:
    """Draw one figure to `path`."""
    lines = _lines(points, drawn)
    canvas = Figure(figsize=(7.0, 4.2 + 0.1 * len(lines)), dpi=130, layout="constrained")
    axes = canvas.add_subplot()
    for number, (name, line) in enumerate(lines.items()):
        places = [_place(text, index) for index, (text, _) in enumerate(line)]
        found = [estimate for _, estimate in line]
        bars = [[e.mean - e.low for e in found], [e.high - e.mean for e in found]]
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        means = [e.mean for e in found]
        axes.errorbar(places, means, yerr=bars, label=name, capsize=3, lw=1.4, ms=4.5, color=color, marker=marker)
    if drawn.log:
        axes.set_yscale("log")
    texts = next(iter(lines.values()), [])
    if any(_number(text) is None for text, _ in texts):
        axes.set_xticks(range(len(texts)), [text for text, _ in texts])
    axes.set_xlabel(drawn.x)
    axes.set_ylabel(drawn.label or drawn.y)
    axes.grid(alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)
    if any(lines):
        canvas.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path)


def _lines(points: Sequence[Point], drawn: Drawn) -> dict[str, list[tuple[str, Estimate]]]:
    """By name of the line: the values of x with what was estimated there."""
    lines: dict[str, list[tuple[str, Estimate]]] = {}
    for point in points:
        found = estimates(point, drawn.y, log=drawn.log)
        text = dict(point.values).get(drawn.x)
        if found is None or text is None:
            continue
        rest = tuple((name, value) for name, value in point.values if name != drawn.x)
        lines.setdefault(name_of(point.case, rest), []).append((text, found))
    return lines


def name_of(case: str, values: Values) -> str:
    """The name of a line: its case, and the values of what else varies."""
    return ", ".join(filter(None, [case, *(value for _, value in values)]))


def _number(text: str) -> float | None:
    try:
        return parse_probability(text) if text.endswith("%") else float(text)
    except ValueError:
        return None


def _place(text: str, index: int) -> float:
    number = _number(text)
    return index if number is None else number
