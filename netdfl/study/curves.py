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
from netdfl.study.plots import COLORS, MARKERS, name_of, name_y, open_frame, save

FLEET = -1
STROKES = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))
"""Patterns of dashes for lines, used in turn, so that a line stays visible below another one."""
Recorded = Mapping[tuple[int, int], float | None]
"""A recorded metric by round and node, or by round and FLEET; None where its value was not finite."""


class MetricCurve(NamedTuple):
    """A metric by round, as the median, minimum and maximum over nodes and seeds.

    Attributes:
        rounds: the rounds.
        middle: the median in each of them.
        low: the minimum.
        high: the maximum.
        whole: whether the curve goes on to the last round.
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

    Equal curves are drawn once; a cross marks a curve that ends early.
    """
    figure, axes = _canvas(drawn, _whose(ran, drawn.y))
    curves = {name: curve_of(cells, drawn.y) for name, cells in by_line(ran).items()}
    looks = dict(zip(curves, zip(cycle(COLORS), cycle(STROKES), strict=False), strict=False))
    for curve, names in together(curves).items():
        color, stroke = looks[names[0]]
        label = "all cases" if len(names) == len(curves) > 1 else "\n".join(names)
        axes.fill_between(curve.rounds, curve.low, curve.high, color=color, alpha=0.07, lw=0)
        for edge in (curve.low, curve.high):
            axes.plot(curve.rounds, edge, lw=0.8, color=color, alpha=0.7, linestyle=stroke)
        axes.plot(curve.rounds, curve.middle, label=label, lw=1.9, color=color, linestyle=stroke)
        if not curve.whole:
            axes.plot(curve.rounds[-1:], curve.middle[-1:], marker="x", ms=9, mew=2.2, color=color)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("round")
    return _save(figure, path)


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
    figure, axes = _canvas(drawn, _whose(ran, drawn.y))
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
            axes.plot(*sent(each, drawn.y), label=label, lw=1.4, ms=3.5, color=color, marker=marker)
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


def _whose(ran: Sequence[CellResult], metric: str) -> str:
    """Return the words for the models that a curve shows: the nodes' own if these have the metric, else the average."""
    of_nodes = (
        row["node"] is not None
        for each in ran
        if not each.failed
        for row in rows(each.path, "metrics")
        if row["name"] == metric
    )
    return EACH if is_of_models(metric) and any(of_nodes) else AVERAGE


def _canvas(drawn: FigureSpec, whose: str = AVERAGE) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.0, 4.2), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    name_y(axes, drawn, whose)
    open_frame(axes)
    return figure, axes


def _save(figure: Figure, path: Path) -> bool:
    """Write a plot to `path`, but not one without a single point; return whether it was written."""
    (axes,) = figure.axes
    places = [line.get_xdata() for line in axes.lines] or [dots.get_offsets() for dots in axes.collections]
    if not any(map(np.size, places)):
        return False
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8, markerscale=2, handlelength=4.5)
    save(figure, path)
    return True
