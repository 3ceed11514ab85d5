"""The plots of a sweep: a line per case, or points over categories, with 95 % confidence intervals."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, PercentFormatter

from netdfl.record.log_axis import label_logs
from netdfl.scenario.model.study import FigureSpec
from netdfl.study.figure_files import ENDINGS
from netdfl.study.labels import key_words
from netdfl.study.outcome import AVERAGE, BYTES, PERCENT, words_of
from netdfl.study.plan import CASE, AxisPositions, Values, places_of
from netdfl.study.summary import Estimate, GridPoint, estimates

COLORS = ("#2f7ed8", "#e07b00", "#2a9d5c", "#c2417c", "#8a63d2", "#8c6d46", "#3d3d3d", "#00a5a5")
MARKERS = "osD^vP*X"
DASHES = ("-", "--", ":")
TRUE_TYPE = 42
"""The value of matplotlib's settings that chooses TrueType fonts."""
APART = 0.006
"""The distance between lines at one value of x, as a share of x's range; so even equal lines are seen side by side."""
BESIDE = 0.6
"""The share of a category's width over which its points are spread."""
LETTERS, TICK_LETTERS = 13, 9
"""How many letters have room in an inch: of a legend, and of an axis with its margins."""
BEFORE_NAME = 8
"""The width of the sample of a line before its name in a legend, in letters."""
NOTE_SIZE, NOTE_COLOR = 8, "#555555"
"""How the note on a plot looks, in points and as a color."""
NOTE_LETTERS = 16
"""How many letters of a note have room in an inch."""
MOST_TICKS = 8
"""The most varied values that an axis of numbers has as its ticks, where they don't lie close to each other."""
PlotLines = dict[str, list[tuple[str, Estimate]]]
"""Lines by name: pairs of a value of x, as text, and an estimate of y."""


def draw(points: Sequence[GridPoint], drawn: FigureSpec, path: Path, note: str = "") -> None:
    """Draw one plot of a sweep's points, specified by `drawn`, to `path`, as PNG and PDF, with a `note` below."""
    save(figure_of(points, drawn, note), path)


def save(figure: Figure, path: Path) -> None:
    """Write a plot to `path` as PNG, and next to it as PDF.

    The PDF has TrueType fonts, as publishers refuse fonts of Type 3.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"pdf.fonttype": TRUE_TYPE}):
        for ending in ENDINGS:
            figure.savefig(path.with_suffix(ending))


def figure_of(points: Sequence[GridPoint], drawn: FigureSpec, note: str = "") -> Figure:
    """Return the plot of a sweep's points that `drawn` specifies, with a `note` below.

    Points with ordered values of x are joined by lines, categories are not.
    """
    points = _by_case(points, drawn)
    panels = _panels(points, drawn)
    names = dict.fromkeys(name for lines in panels.values() for name in lines)
    looks = _looks(points, drawn)
    places = places_of([dict(point.values)[drawn.x] for point in points if drawn.x in dict(point.values)])
    width = max(7.0, 3.6 * len(panels))
    ncols = columns(names, width, most=2)
    canvas = Figure(figsize=(width, 4.2 + 0.2 * len(names) / ncols), dpi=130, layout="constrained")
    row = canvas.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (heading, lines) in zip(row, panels.items(), strict=True):
        if lines:
            _draw_lines(axes, lines, places, looks)
            _turn_labels(axes, places, width / len(panels))
        axes.set_title(heading, fontsize=10)
        axes.set_xlabel(key_words(drawn.x, [path for path, _ in points[0].values]))
    first = canvas.axes[0]
    name_y(first, drawn)
    if names:
        about_bars = bar_note(max(len(point.figures.get(drawn.y, ())) for point in points), drawn)
        legend_below(canvas, ncols, [about_bars, note])
    return canvas


def _by_case(points: Sequence[GridPoint], drawn: FigureSpec) -> Sequence[GridPoint]:
    """Return the points with their case as a varied value, if the plot is against the cases or has a panel for each."""
    if CASE not in (drawn.x, drawn.panels) or any(path == CASE for point in points[:1] for path, _ in point.values):
        return points
    return [point._replace(case="", values=((CASE, point.case), *point.values)) for point in points]


def bar_note(num_seeds: int, drawn: FigureSpec) -> str:
    """Return the note below a plot that explains its dots and bars, as means and intervals over `num_seeds` seeds."""
    if num_seeds < 2:
        return "dot: one seed"
    return f"dot: the {'geometric ' * drawn.log}mean over {num_seeds} seeds; bar: its 95 % confidence interval"


def noted(notes: Iterable[str], width: float) -> str:
    """Return the notes on a plot as one text, each wrapped to lines that fit into `width` inches."""
    letters = int(width * NOTE_LETTERS)
    return "\n".join(line for note in notes for line in textwrap.wrap(note, letters))


def legend_below(figure: Figure, ncols: int, notes: Iterable[str]) -> None:
    """Put the legend of the figure's first axes below all of them, with notes on what lines, bands or bars are."""
    legend = figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=ncols,
        frameon=False,
        fontsize=NOTE_SIZE,
        title=noted(notes, figure.get_figwidth()),
        title_fontsize=NOTE_SIZE,
    )
    legend.get_title().set_color(NOTE_COLOR)
    legend.get_title().set_multialignment("center")


def columns(names: Iterable[str], width: float, most: int) -> int:
    """Return how many columns of a legend with these names have room in a plot of `width` inches, at most `most`."""
    longest = max(map(len, names), default=0)
    return max(1, min(most, int(width * LETTERS / (longest + BEFORE_NAME))))


def _turn_labels(axes: Axes, places: AxisPositions, width: float) -> None:
    """Turn the labels of categories where all of them have no room side by side in `width` inches."""
    if not places.ordered and sum(len(text) + 2 for text in places.at) > TICK_LETTERS * width:
        for label in axes.get_xticklabels():
            label.set(rotation=20, ha="right", rotation_mode="anchor")


def _looks(points: Sequence[GridPoint], drawn: FigureSpec) -> dict[str, int]:
    """Return the number of each line, which decides its color: the same in all panels, and for all metrics."""
    found: dict[str, None] = {}
    for point in points:
        rest = tuple(pair for pair in point.values if pair[0] not in (drawn.x, drawn.panels))
        found.setdefault(name_of(point.case, rest))
    return {name: number for number, name in enumerate(found)}


def _draw_lines(axes: Axes, lines: PlotLines, places: AxisPositions, looks: Mapping[str, int]) -> None:
    apart = APART * (max(places.at.values()) - min(places.at.values())) if places.ordered else BESIDE / len(lines)
    for place, (name, line) in enumerate(lines.items()):
        moved, number = apart * (place - (len(lines) - 1) / 2), looks[name]
        found = [estimate for _, estimate in line]
        bars = [[e.mean - e.low for e in found], [e.high - e.mean for e in found]]
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        axes.errorbar(
            [places.at[text] + moved for text, _ in line],
            [e.mean for e in found],
            yerr=bars,
            label=name,
            color=color,
            marker=marker,
            linestyle=DASHES[number // len(COLORS) % len(DASHES)] if places.ordered else "none",
            capsize=2,
            lw=1.3,
            elinewidth=0.9,
            ms=4.5,
        )
    if places.labels:
        axes.set_xticks(list(places.at.values()), list(places.at))
    elif _has_room(places.at.values()):
        axes.set_xticks(list(places.at.values()))
    if not places.labels:
        percent = any(text.endswith("%") for text in places.at)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:g}%" if percent else f"{x:g}"))
    if not places.ordered:
        axes.set_xlim(-0.5, len(places.at) - 0.5)
    open_frame(axes)


def _has_room(values: Iterable[float]) -> bool:
    """Return whether the different values are few enough, and far enough apart, for each to be a tick."""
    at = sorted(set(values))
    least = min((b - a for a, b in pairwise(at)), default=0.0)
    return len(at) == 1 or (len(at) <= MOST_TICKS and least * MOST_TICKS >= at[-1] - at[0])


def name_y(axes: Axes, drawn: FigureSpec, whose: str = AVERAGE) -> None:
    """Scale and label the y-axis as the specification `drawn` of the plot says.

    If `drawn` has no label for the axis, the label says `whose` metric is drawn.
    """
    if drawn.log:
        axes.set_yscale("log")
        label_logs(axes.yaxis)
    if drawn.y in PERCENT:
        axes.yaxis.set_major_formatter(PercentFormatter(1))
    if drawn.y in BYTES:
        axes.yaxis.set_major_formatter(EngFormatter("B"))
    axes.set_ylabel(drawn.label or words_of(drawn.y, whose))


def open_frame(axes: Axes) -> None:
    """Draw a pale grid, and axes on two sides only."""
    axes.grid(alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)


def _panels(points: Sequence[GridPoint], drawn: FigureSpec) -> dict[str, PlotLines]:
    """Return the lines of each panel by its heading; a single panel has no heading."""
    grouped: dict[str, list[GridPoint]] = {}
    for point in points:
        rest = tuple((name, value) for name, value in point.values if name != drawn.panels)
        heading = name_of("", tuple(pair for pair in point.values if pair[0] == drawn.panels))
        grouped.setdefault(heading, []).append(point._replace(values=rest))
    return {heading: _lines(each, drawn) for heading, each in grouped.items()}


def _lines(points: Sequence[GridPoint], drawn: FigureSpec) -> PlotLines:
    """Return the lines by name, each with values of x and estimates of y."""
    lines: PlotLines = {}
    for point in points:
        found = estimates(point, drawn.y, log=drawn.log)
        text = dict(point.values).get(drawn.x)
        if found is None or text is None:
            continue
        rest = tuple((name, value) for name, value in point.values if name != drawn.x)
        lines.setdefault(name_of(point.case, rest), []).append((text, found))
    return lines


def name_of(case: str, values: Values) -> str:
    """Return the name of a line: its case, and its other varied values, each with a key unless the value is clear.

    The key is the last part of the path, or the whole path if another one ends alike.
    """
    ends = [path.rpartition(".")[2] for path, _ in values]
    keys = [end if ends.count(end) == 1 else path for end, (path, _) in zip(ends, values, strict=True)]
    said = [
        value if _speaks(path, value) else f"{key}={value}" for key, (path, value) in zip(keys, values, strict=True)
    ]
    return ", ".join(filter(None, [case, *said]))


def _speaks(path: str, value: str) -> bool:
    """Return whether a value needs no key beside it: the name of an algorithm or graph, a label with a key."""
    named = path.rpartition(".")[2] in ("name", "kind") or "." not in path
    return (named and is_word(value)) or bool(re.match(r"[\w.]+=", value))


def is_word(value: str) -> bool:
    """Return whether a value is a word, rather than a number, a truth value or nothing."""
    return bool(re.match(r"[A-Za-z]", value)) and value not in ("true", "false", "none", "null")
