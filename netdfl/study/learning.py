"""Learning curves of a sweep: the mean over seeds with a 95 % band, by round, time and bytes sent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from netdfl.scenario.model.study import FigureSpec
from netdfl.study.cells import CellResult
from netdfl.study.curves import MOST_BANDS, STROKES, Stroke, by_line, looks_of, note_of, of_fleet, sent
from netdfl.study.labels import key_words
from netdfl.study.plan import Values
from netdfl.study.plots import columns, legend_below, name_of, name_y, noted, open_frame, save
from netdfl.study.rivals import level_of, rival_key
from netdfl.study.summary import LEAST, Estimate, estimate, estimate_log, within
from netdfl.study.untimed import time_note

GRID = 60
"""The number of points of a mean curve over time or bytes, where the points of single runs differ."""
MOST_ROWS = 4
"""The most rows of panels, one for each level (combination of values of what varies beside the methods)."""
WIDTH, HEIGHT = 2.5, 2.3
"""The size of a panel in inches: letters of a plot as wide as a page's text can still be read."""
NOTE_HEIGHT = 0.14
"""The height of a line of notes, in inches."""
Trace = tuple[Sequence[float], Sequence[float]]
"""The points of one run: the abscissas (round, seconds or bytes), and the metric at each."""


class CurveBand(NamedTuple):
    """A mean curve over seeds with its confidence band.

    Attributes:
        at: the abscissas: rounds, seconds or bytes.
        found: the mean with its interval at each of them.
        cut: whether some run is longer than the curve, which ends with the shortest run.
    """

    at: tuple[float, ...]
    found: tuple[Estimate, ...]
    cut: bool = False


def by_round(ran: CellResult, metric: str) -> Trace:
    """Return the fleet's metric by round, counted from 1."""
    found = sorted((row["round"] + 1.0, row["value"]) for row in of_fleet(ran.path, metric))
    return [x for x, _ in found], [y for _, y in found]


def by_time(ran: CellResult, metric: str) -> Trace:
    """Return the fleet's metric over time, in s of the fleet's clock."""
    found = sorted((row["at_s"], row["round"], row["value"]) for row in of_fleet(ran.path, metric))
    return [x for x, _, _ in found], [y for _, _, y in found]


BYTES_SENT = "bytes sent by all nodes"
ALIKE = 0.01
"""The distance up to which two curves can't be told apart by eye, as a share of the height of all curves."""
TIME = "time (s)"
ABSCISSAS = {"round": by_round, TIME: by_time, BYTES_SENT: sent}
_OVER = {"round": "rounds", TIME: "time", BYTES_SENT: "bytes"}


def band(traces: Sequence[Trace], metric: str = "", *, log: bool = False) -> CurveBand:
    """Return the mean of several runs' curves with a confidence band, over the abscissas that all of them cover.

    The band of a `metric` that is a share stays between 0 and 1. With `log`, means are geometric.
    """
    usable = [(list(at), list(values)) for at, values in traces if at]
    if not usable:
        return CurveBand((), ())
    same = all(at == usable[0][0] for at, _ in usable)
    start, end = max(at[0] for at, _ in usable), min(at[-1] for at, _ in usable)
    places = usable[0][0] if same else list(np.linspace(start, end, GRID)) if end > start else []
    columns = [[float(np.interp(x, at, values)) for at, values in usable] for x in places]
    found = tuple(within((estimate_log if log else estimate)(column), metric) for column in columns)
    return CurveBand(tuple(map(float, places)), found, any(at[-1] > end for at, _ in usable))


def draw_learning(ran: Sequence[CellResult], metric: str, folder: Path, *, log: bool = False) -> None:
    """Draw `metric` over rounds, time and bytes to `folder`, as PNG and PDF; draw nothing if it was not recorded.

    Lines with bands lie over each other. So where there are more than `MOST_BANDS`, each level of what varies beside
    the methods has a row of its own.
    """
    lines = by_line(ran)
    panels = _panels(lines, metric, log=log)
    if not panels:
        return
    rows, looks = _rows(lines), looks_of(lines)
    labels = {name: name for name in lines}
    if len(rows) > 1:  # the row says the level, so the same line stands for a method in all of them
        labels = _methods(lines)
        looks = {name: (color, STROKES[0]) for name, (color, _) in looks.items()}
    width = 1 + WIDTH * len(panels)
    ncols = columns(set(labels.values()), width, most=3)
    note = _note(panels, max(map(len, lines.values())), max(map(len, rows.values())), log=log)
    covered = _covered(rows, _heights(next(iter(panels.values())), log=log), labels)
    notes = [note, *covered, *([time_note(each.untimed for each in ran)] if TIME in panels else [])]
    height = 0.8 + HEIGHT * len(rows) + 0.3 * len(set(labels.values())) / ncols
    height += NOTE_HEIGHT * noted(notes, width).count("\n")
    figure = Figure(figsize=(width, height), dpi=160, layout="constrained")
    grid = figure.subplots(len(rows), len(panels), sharex="col", sharey=True, squeeze=False)
    for row, (level, names) in zip(grid, rows.items(), strict=True):
        for axes, bands in zip(row, panels.values(), strict=True):
            _draw_bands(axes, {labels[name]: bands[name] for name in names}, {labels[n]: looks[n] for n in names})
        name_y(row[0], FigureSpec(y=metric, x="round", log=log))
        row[0].set_title(level, loc="left", fontsize=10)
    virtual = all((each.result or {}).get("world") == "simulated" for each in ran)
    for axes, name in zip(grid[-1], panels, strict=True):
        _name_x(axes, name, virtual=virtual)
    legend_below(figure, ncols, notes)
    save(figure, folder / f"{metric}_learning.png")


def _name_x(axes: Axes, name: str, *, virtual: bool) -> None:
    """Label the axis of rounds, time or bytes; time is `virtual` where all runs are simulated."""
    axes.set_xlabel(f"virtual {name}" if virtual and name == TIME else name)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=name == "round"))
    if "bytes" in name:
        axes.xaxis.set_major_formatter(EngFormatter("B"))


def _panels(lines: Mapping[str, Sequence[CellResult]], metric: str, *, log: bool) -> dict[str, dict[str, CurveBand]]:
    """Return the curves of each line by abscissa (rounds, time, bytes), without abscissas that add nothing."""
    panels = {
        name: bands
        for name, trace in ABSCISSAS.items()
        if _moves(
            bands := {
                line: band([trace(each, metric) for each in cells], metric, log=log) for line, cells in lines.items()
            }
        )
    }
    if panels and _is_round_by_another_name(panels.get("round", {}), panels.get(BYTES_SENT, {})):
        del panels[BYTES_SENT]
    return panels


def _rows(lines: Mapping[str, Sequence[CellResult]]) -> dict[str, list[str]]:
    """Return the names of the lines of each row of panels, by the row's title: one row, or one for each level."""
    places = {name: cells[0].cell.place for name, cells in lines.items()}
    key = rival_key(places.values())
    levels: dict[Values, list[str]] = {}
    for name, place in places.items():
        levels.setdefault(level_of(place, key), []).append(name)
    if len(lines) <= MOST_BANDS or len(levels) > MOST_ROWS or max(map(len, levels.values())) > MOST_BANDS:
        return {"": list(lines)}
    paths = [path for place in places.values() for path, _ in place[1]]
    return {_title(level, list(dict.fromkeys(paths))): names for level, names in levels.items()}


def _methods(lines: Mapping[str, Sequence[CellResult]]) -> dict[str, str]:
    """Return what is compared in each line, its case or its value of the compared key, by the line's name."""
    places = {name: cells[0].cell.place for name, cells in lines.items()}
    key = rival_key(places.values())
    if not key:
        return {name: case for name, (case, _) in places.items()}
    return {name: name_of("", tuple(pair for pair in values if pair[0] == key)) for name, (_, values) in places.items()}


def _title(level: Values, paths: Sequence[str]) -> str:
    return ", ".join(f"{key_words(path, paths)} {value}" for path, value in level)


def _note(panels: Mapping[str, Mapping[str, CurveBand]], num_seeds: int, most: int, *, log: bool) -> str:
    """Return the note of a plot on its lines and bands; `most` is the largest number of lines in a panel."""
    note = note_of(f"{'geometric ' * log}mean", num_seeds)
    if num_seeds < 2:
        return note
    note += "; band: its 95 % confidence interval" if most <= MOST_BANDS else f"; no bands, as there are {most} lines"
    cut = [_OVER[name] for name, bands in panels.items() if any(each.cut for each in bands.values())]
    over = " and ".join(filter(None, [", ".join(cut[:-1]), *cut[-1:]]))
    return f"{note}; over {over} to where the first of the runs ended" if cut else note


def _heights(bands: Mapping[str, CurveBand], *, log: bool) -> dict[str, dict[float, float]]:
    """Return each line's height by abscissa, as a share of the vertical range of all lines."""
    means = {
        name: [math.log(max(each.mean, LEAST)) if log else each.mean for each in one.found]
        for name, one in bands.items()
    }
    all_means = [mean for each in means.values() for mean in each]
    height = max(all_means) - min(all_means) or 1.0
    return {name: dict(zip(bands[name].at, (y / height for y in each), strict=True)) for name, each in means.items()}


def _covered(
    rows: Mapping[str, Sequence[str]], heights: Mapping[str, Mapping[float, float]], labels: Mapping[str, str]
) -> list[str]:
    """Return a sentence for each line that is hidden by an equal line, which is drawn after it.

    `rows` has the names of the lines of each row, `labels` the name of each in the legend.
    """
    found: dict[str, list[str]] = {}
    for level, names in rows.items():
        for place, name in enumerate(names):
            upon = next((each for each in names[place + 1 :] if _are_alike(heights[name], heights[each])), None)
            if upon is not None:
                found.setdefault(f"{labels[name]} lies under {labels[upon]}", []).append(level)
    return [text if len(at) == len(rows) else f"{text} at {', '.join(at)}" for text, at in found.items()]


def _are_alike(a: Mapping[float, float], b: Mapping[float, float]) -> bool:
    """Return whether two lines coincide, up to `ALIKE`."""
    return bool(a) and a.keys() == b.keys() and all(abs(y - b[x]) <= ALIKE for x, y in a.items())


def _draw_bands(axes: Axes, bands: Mapping[str, CurveBand], looks: Mapping[str, tuple[str, Stroke]]) -> None:
    for name, (at, found, _) in bands.items():
        color, stroke = looks[name]
        if len(bands) <= MOST_BANDS:
            axes.fill_between(at, [e.low for e in found], [e.high for e in found], color=color, alpha=0.18, lw=0)
        axes.plot(at, [e.mean for e in found], label=name, lw=1.6, color=color, linestyle=stroke)
    open_frame(axes)


def _is_round_by_another_name(rounds: Mapping[str, CurveBand], sizes: Mapping[str, CurveBand]) -> bool:
    """Return whether all lines send equally many bytes in each round, so that curves over bytes would add nothing.

    `rounds` and `sizes` are the lines' curves over rounds and over bytes.
    """
    ratios: set[float] = set()
    for name, bands in sizes.items():
        at = rounds[name].at if name in rounds else ()
        if len(at) != len(bands.at):
            return False
        ratios |= {round(nbytes / each, 6) for each, nbytes in zip(at, bands.at, strict=True)}
    return len(ratios) == 1


def _moves(bands: Mapping[str, CurveBand]) -> bool:
    """Return whether one of the curves has at least two different abscissas.

    Over time, a simulated fleet's curve may have only one.
    """
    return any(len(each.at) > 1 and each.at[-1] > each.at[0] for each in bands.values())
