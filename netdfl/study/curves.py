"""Plots of a sweep from values recorded each round: curves of a metric, or one metric against another."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate, cycle
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from netdfl.core.types import Json
from netdfl.record.log_axis import label_logs
from netdfl.scenario.model.study import FigureSpec
from netdfl.study.cells import CellResult
from netdfl.study.outcome import AVERAGE, EACH, is_of_models, rows
from netdfl.study.plots import COLORS, MARKERS, NOTE_COLOR, NOTE_SIZE, name_of, name_y, open_frame, save
from netdfl.study.rivals import level_of, rival_key, rival_of
from netdfl.study.summary import LEAST

FLEET = -1
Stroke = str | tuple[int, tuple[float, ...]]
STROKES: tuple[Stroke, ...] = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
"""Patterns of dashes for lines, used in turn, so that a line stays visible below another one."""
MOST_BANDS = 3
"""The most lines of a plot that have bands; the bands of more lines would overlap."""
Recorded = Mapping[tuple[int, int], float | None]
"""A recorded metric by round and node, or by round and FLEET; None where its value was not finite."""


class MetricCurve(NamedTuple):
    """A metric by round, as the median, minimum and maximum over nodes and seeds.

    Attributes:
        rounds: the rounds.
        middle: the median in each of them.
        low: the minimum.
        high: the maximum.
        whole: whether the curve reaches the last round.
    """

    rounds: tuple[int, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    whole: bool


def curve_of(ran: Sequence[CellResult], metric: str) -> MetricCurve:
    """Return the curve of a metric over these runs, by round.

    It ends before the first round in which a value is not finite or a node dies.
    """
    runs = [_recorded(each.path, metric) for each in ran]
    asked = min(int((each.result or {})["rounds"]) for each in ran)
    bad = [round for found in runs for (round, _), value in found.items() if value is None]
    end = min([asked, *bad, *(round for each in ran for round in _deaths(each.path))])
    columns: dict[int, list[float]] = {}
    for found in runs:
        for (round, _), value in found.items():
            if round < end and value is not None:
                columns.setdefault(round, []).append(value)
    values = [columns[round] for round in sorted(columns)]
    rounds = tuple(round + 1 for round in sorted(columns))
    return MetricCurve(
        rounds, tuple(map(median, values)), tuple(map(min, values)), tuple(map(max, values)), end == asked
    )


def _above_nothing(curve: MetricCurve) -> MetricCurve:
    """Return a curve for a logarithmic axis, with values below 2^-52 raised to 2^-52, as in means of logarithms."""
    middle, low, high = (tuple(max(y, LEAST) for y in each) for each in (curve.middle, curve.low, curve.high))
    return curve._replace(middle=middle, low=low, high=high)


def follows(ran: Sequence[CellResult], y: str, x: str, lag: int) -> tuple[list[float], list[float]]:
    """Return metric `x`, `lag` rounds earlier, and metric `y`, for every node and round in which both are finite."""
    pairs: list[tuple[float, float]] = []
    for each in ran:
        before, now = _recorded(each.path, x), _recorded(each.path, y)
        found = [(before.get((round - lag, node)), value) for (round, node), value in now.items()]
        pairs += [(a, b) for a, b in found if a is not None and b is not None]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _recorded(path: Path, metric: str) -> Recorded:
    """Return the recorded metric of the nodes or, if they lack it, of the fleet."""
    found: dict[tuple[int, int], float | None] = {}
    for row in rows(path, "metrics"):
        if row["name"] == metric:
            found[row["round"], FLEET if row["node"] is None else row["node"]] = row["value"]
    return {place: value for place, value in found.items() if place[1] != FLEET} or found


def _deaths(path: Path) -> list[int]:
    """Return the rounds in which nodes died."""
    nodes = json.loads((path / "fleet.json").read_text(encoding="utf-8"))["nodes"]
    return [node["round"] for node in nodes if node["phase"] == "died"]


def draw_curves(ran: Sequence[CellResult], drawn: FigureSpec, path: Path) -> bool:
    """Draw a metric over rounds to `path`; return whether there was something to draw.

    Equal curves are drawn once. The bands between minimum and maximum are filled only if there are at most `MOST_BANDS`
    curves. A note below says what lines and bands are, and a cross marks a curve that ends early.
    """
    of_nodes = _is_of_nodes(ran, drawn.y)
    figure, axes = _canvas(drawn, _whose(drawn.y, of_nodes=of_nodes))
    lines = by_line(ran)
    curves = {name: curve_of(cells, drawn.y) for name, cells in lines.items()}
    if drawn.log:
        curves = {name: _above_nothing(curve) for name, curve in curves.items()}
    looks, distinct = looks_of(lines), together(curves)
    for curve, names in distinct.items():
        color, stroke = looks[names[0]]
        label = "all cases" if len(names) == len(curves) > 1 else "\n".join(names)
        _draw_range(axes, curve, color, stroke, filled=len(distinct) <= MOST_BANDS)
        axes.plot(curve.rounds, curve.middle, label=label, lw=1.9, color=color, linestyle=stroke)
        if not curve.whole:
            axes.plot(curve.rounds[-1:], curve.middle[-1:], marker="x", ms=9, mew=2.2, color=color)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")
    seeds = max(map(len, lines.values()), default=0)
    note = note_of("median", seeds, nodes=of_nodes)
    if of_nodes or seeds > 1:
        note += "; thin lines: the lowest and the highest"
    figure.supxlabel(note, fontsize=NOTE_SIZE, color=NOTE_COLOR)
    return _save(figure, path)


def note_of(middle: str, num_seeds: int, *, nodes: bool = False) -> str:
    """Return the note below a plot on what its lines are, such as `line: the median over nodes and 3 seeds`.

    `middle` is the statistic, such as `median`; with `nodes`, each node has its own values.
    """
    seeds = f"{num_seeds} seeds" if num_seeds > 1 else "one seed"
    return f"line: the {middle} over {'nodes and ' * nodes}{seeds}" if nodes or num_seeds > 1 else "line: one seed"


def _draw_range(axes: Axes, curve: MetricCurve, color: str, stroke: Stroke, *, filled: bool) -> None:
    """Draw the lowest and the highest values of a curve as thin lines; with `filled`, with a band between them."""
    if filled:
        axes.fill_between(curve.rounds, curve.low, curve.high, color=color, alpha=0.07, lw=0)
    for edge in (curve.low, curve.high):
        axes.plot(curve.rounds, edge, lw=0.8 if filled else 0.6, color=color, alpha=0.7, linestyle=stroke)


def looks_of(lines: Mapping[str, Sequence[CellResult]]) -> dict[str, tuple[str, Stroke]]:
    """Return the color and dashes of each line: a color for each method, dashes for each level of what else varies.

    Where nothing else varies, or there are too many methods or levels, colors and dashes are used in turn.
    """
    places = {name: cells[0].cell.place for name, cells in lines.items()}
    key = rival_key(places.values())
    colors = list(dict.fromkeys(rival_of(place, key) for place in places.values()))
    strokes = list(dict.fromkeys(level_of(place, key) for place in places.values()))
    if len(colors) > len(COLORS) or not 1 < len(strokes) <= len(STROKES):
        return {
            name: (COLORS[i % len(COLORS)], STROKES[(i + i // len(COLORS)) % len(STROKES)])
            for i, name in enumerate(lines)
        }
    return {
        name: (COLORS[colors.index(rival_of(place, key))], STROKES[strokes.index(level_of(place, key))])
        for name, place in places.items()
    }


def together(curves: Mapping[str, MetricCurve]) -> dict[MetricCurve, list[str]]:
    """Return the distinct curves, each with the names of all lines that have this curve."""
    names: dict[MetricCurve, list[str]] = {}
    for name, curve in curves.items():
        names.setdefault(curve, []).append(name)
    return names


def draw_points(ran: Sequence[CellResult], drawn: FigureSpec, path: Path, labels: Mapping[str, str]) -> bool:
    """Draw a metric of the nodes against another one of earlier rounds to `path`; `labels` are names for people.

    Return whether there was something to draw.
    """
    figure, axes = _canvas(drawn, _whose(drawn.y, of_nodes=_is_of_nodes(ran, drawn.y)))
    metric, _, lag = drawn.x.partition("@")
    for (name, cells), color, marker in zip(by_line(ran).items(), cycle(COLORS), cycle(MARKERS), strict=False):
        found = follows(cells, drawn.y, metric, int(lag))
        axes.scatter(*found, s=9, alpha=0.5, lw=0, color=color, marker=marker, label=name)
    axes.set_xscale("log")
    label_logs(axes.xaxis)
    axes.set_xlabel(f"{labels.get(metric, metric)} {'a round' if lag == '1' else f'{lag} rounds'} before")
    return _save(figure, path)


def sent(ran: CellResult, metric: str) -> tuple[list[float], list[float]]:
    """Return the total bytes sent by the end of each round, and the fleet's metric in that round."""
    by_round: dict[int, float] = {}
    for (round, _), nbytes in _recorded(ran.path, "bytes_sent").items():
        by_round[round] = by_round.get(round, 0.0) + (nbytes or 0.0)
    rounds = sorted(by_round)
    total = dict(zip(rounds, accumulate(by_round[round] for round in rounds), strict=True))
    found = sorted((row["round"], row["value"]) for row in of_fleet(ran.path, metric))
    return [total[round] for round, _ in found], [value for _, value in found]


def of_fleet(path: Path, metric: str) -> list[Json]:
    """Return the finite rows of a metric of the fleet, leaving out the nodes' metrics of the same name."""
    found = (row for row in rows(path, "metrics") if row["name"] == metric and row["node"] is None)
    return [row for row in found if row["value"] is not None]


def draw_sent(ran: Sequence[CellResult], drawn: FigureSpec, path: Path) -> bool:
    """Draw the fleet's metric against the bytes sent so far to `path`, one line per run.

    Return whether there was something to draw.
    """
    figure, axes = _canvas(drawn)
    for (name, cells), color, marker in zip(by_line(ran).items(), cycle(COLORS), cycle(MARKERS), strict=False):
        for number, each in enumerate(cells):
            label = name if number == 0 else None
            nbytes, values = sent(each, drawn.y)
            values = [max(y, LEAST) for y in values] if drawn.log else values
            axes.plot(nbytes, values, label=label, lw=1.4, ms=3.5, color=color, marker=marker)
    axes.set_xscale("log")
    label_logs(axes.xaxis, "B")
    axes.set_xlabel("bytes sent by all nodes")
    return _save(figure, path)


def by_line(ran: Sequence[CellResult]) -> dict[str, list[CellResult]]:
    """Return the runs with results, grouped by the name of their line in the plot."""
    lines: dict[str, list[CellResult]] = {}
    for each in ran:
        if not each.failed:
            lines.setdefault(name_of(each.cell.case, each.cell.values), []).append(each)
    return lines


def _whose(metric: str, *, of_nodes: bool) -> str:
    """Return the words for the models that a curve shows: the nodes' own if these have the metric, else the average."""
    return EACH if is_of_models(metric) and of_nodes else AVERAGE


def _is_of_nodes(ran: Sequence[CellResult], metric: str) -> bool:
    """Return whether any run recorded the metric for single nodes, and not only for the fleet."""
    found = (rows(each.path, "metrics") for each in ran if not each.failed)
    return any(row["name"] == metric and row["node"] is not None for of_run in found for row in of_run)


def _canvas(drawn: FigureSpec, whose: str = AVERAGE) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.0, 4.2), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    name_y(axes, drawn, whose)
    open_frame(axes)
    return figure, axes


def _save(figure: Figure, path: Path) -> bool:
    """Write a plot to `path`, unless it has no points; return whether it was written."""
    (axes,) = figure.axes
    places = [line.get_xdata() for line in axes.lines] or [dots.get_offsets() for dots in axes.collections]
    if not any(map(np.size, places)):
        return False
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8, markerscale=2, handlelength=4.5)
    save(figure, path)
    return True
