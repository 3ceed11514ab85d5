"""Figures of a run (`run.plot`) drawn with matplotlib: to look at in a notebook, to change, and to save."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from netdfl.core.errors import InputError, expect, is_number
from netdfl.core.types import Edge, NodeId
from netdfl.record.forms import PartitionForm, read_nodes
from netdfl.record.history import read_outages
from netdfl.record.kept_stalls import kept_stalls

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDE = (8.0, 3.4)
WAITING, DOWN, TRAINED, STALLED = "#e07b00", "#555555", "#2f7ed8", "#d33f3f"
MOST_LABELS = 60
ARROW = {"arrowstyle": "-|>", "color": STALLED, "shrinkA": 10, "shrinkB": 11, "connectionstyle": "arc3,rad=0.1"}
ACCURACIES = {"test_accuracy": "average model", "mean_local_accuracy": "mean of local models"}


class RecordedRun(Protocol):
    """The interface of a recorded run that its plots need; `netdfl.record.run.Run` implements it."""

    @property
    def path(self) -> Path:
        """The run directory."""

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""

    @property
    def partition(self) -> PartitionForm | None:
        """The partition of the data over clients."""

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of an SQL query."""


class Plots:
    """Plots of one run. Each method draws a new figure, in colors that color-blind readers can tell apart."""

    def __init__(self, run: RecordedRun) -> None:
        """Prepare to draw figures of `run`."""
        self._run = run

    def accuracy(self) -> Figure:
        """Draw the test accuracy by round, of the average model and the mean of local models.

        Raises:
            InputError: no accuracy was measured.
        """
        curves = {name: self._of_fleet(name) for name in ACCURACIES}
        if not any(curves.values()):
            raise InputError(f"{self._run.path} has no accuracy: nothing was judged; .curve('error') may be there")
        from matplotlib.ticker import PercentFormatter

        figure, axes = _canvas(WIDE)
        for name, points in curves.items():
            if points:
                axes.plot(*zip(*points, strict=True), label=ACCURACIES[name], marker="." if len(points) < 30 else None)
        axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        _whole(axes.xaxis)
        axes.legend()
        return figure

    def curve(self, name: str, *, log: bool = False) -> Figure:
        """Draw a metric of the fleet by round: `test_loss`, `consensus_distance`, `error`.

        Raises:
            InputError: the run has no figure of that name.
        """
        points = self._of_fleet(name)
        if not points:
            known = [
                row[0] for row in self._run.rows("SELECT DISTINCT name FROM metrics WHERE node IS NULL ORDER BY name")
            ]
            raise InputError(
                f"{self._run.path} has no figure {name!r} of the fleet; there are {', '.join(known) or 'none'}"
            )
        figure, axes = _canvas(WIDE)
        axes.plot(*zip(*points, strict=True), marker="." if len(points) < 30 else None)
        axes.set(xlabel="round", ylabel=name.replace("_", " "))
        _whole(axes.xaxis)
        if log:
            from netdfl.record.log_axis import label_logs

            axes.set_yscale("log")
            label_logs(axes.yaxis)
        return figure

    def partition(self) -> Figure:
        """Draw the data of each client: one column per client, one row per class, a dot sized by number of examples.

        Raises:
            InputError: the run has no examples of classes.
        """
        found = self._run.partition
        if found is None:
            raise InputError(f"{self._run.path} has no examples of classes that are shared out over clients")
        width = min(12.0, 1.6 + 0.3 * len(found["counts"]))
        figure, axes = _canvas((width, min(8.0, 1.2 + 0.22 * len(found["classes"]))))
        draw_partition(axes, found["counts"], found["classes"])
        return figure

    def links(self) -> Figure:
        """Draw the share of messages lost on each link and the median delay, as two maps with one row per sender."""
        import numpy as np

        num, size = self._run.num_nodes, (8.0, 4.0)
        lost, delay = np.full((num, num), np.nan), np.full((num, num), np.nan)
        for src, dst, share, seconds in self._run.rows(
            "WITH took AS (SELECT src, dst, median(arrived_s - sent_s) AS delay FROM messages GROUP BY src, dst), "
            "lost AS (SELECT src, dst, coalesce(sum(messages) FILTER (fate LIKE 'dropped%' OR fate LIKE 'failed%'), 0) "
            "/ sum(messages) AS share FROM link_totals GROUP BY src, dst) "
            "SELECT src, dst, share, delay FROM lost LEFT JOIN took USING (src, dst)"
        ):
            if max(src, dst) < num:
                lost[src, dst] = share
                delay[src, dst] = np.nan if seconds is None else seconds
        figure, _ = _canvas(size, axes=False)
        parts = ((lost, "share of messages lost", 1), (delay, "median delay in ms", 1000))
        for axes, (matrix, label, scale) in zip(figure.subplots(1, 2), parts, strict=True):
            image = axes.imshow(scale * matrix, cmap="viridis", vmin=0, interpolation="nearest")
            figure.colorbar(image, ax=axes, label=label, shrink=0.7)
            axes.set(xlabel="to node", ylabel="from node")
            _whole(axes.xaxis, axes.yaxis)
        return figure

    def waits(self, at: float) -> Figure:
        """Draw the wait-for graph at `at` seconds: an arrow from each waiting node to each awaited node.

        Of a wait that ended, only the last sender and the nodes whose messages were missing are recorded. A wait that
        never ended is drawn from the snapshot that was saved of its stall.
        """
        expect(is_number(at), "at", at, "seconds since the start")
        edges, waiting = self.waits_at(at)
        num = self._run.num_nodes
        figure, axes = _canvas((4.6, 4.6))
        axes.set_axis_off()
        axes.set_aspect("equal")
        place = [
            (math.cos(angle), math.sin(angle)) for angle in (2 * math.pi * node / max(1, num) for node in range(num))
        ]
        for tail, head in edges:
            if max(tail, head) < num:
                axes.annotate("", place[head], place[tail], arrowprops=ARROW)
        labels = num <= MOST_LABELS
        colors = [WAITING if node in waiting else TRAINED for node in range(num)]
        axes.scatter(*zip(*place, strict=True), c=colors, s=320 if labels else 20, zorder=3, linewidth=0)
        for node in range(num) if labels else ():
            axes.annotate(str(node), place[node], ha="center", va="center", color="white", zorder=4)
        axes.margins(0.12)
        axes.set_title(f"waits at {at:g} s: {len(waiting)} of {num} nodes")
        return figure

    def timeline(self) -> Figure:
        """Draw one horizontal lane per node: its rounds, waits, outages, pauses and stalls."""
        num = self._run.num_nodes
        figure, axes = _canvas((9.0, min(12.0, 1.2 + 0.25 * num)))
        ended = self._run.rows("SELECT node, at_s - value, value FROM metrics WHERE name = 'round_s' AND node >= 0")
        waits = self._run.rows("SELECT node, since_s, until_s - since_s FROM waits")
        _lanes(axes, ended, TRAINED, "in a round")
        _lanes(axes, waits, WAITING, "waiting")
        _lanes(axes, self._outages(), DOWN, "absent, down or paused")
        _lanes(axes, self._stalled(), STALLED, "waiting to the end")
        axes.set(xlabel="seconds since the start", ylabel="node", ylim=(num - 0.4, -0.6))
        _whole(axes.yaxis)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        return figure

    def waits_at(self, at: float) -> tuple[list[Edge], set[NodeId]]:
        """Return the edges of the wait-for graph at `at` seconds, as recorded, and the nodes that wait."""
        edges: set[Edge] = set()
        waiting: set[NodeId] = set()
        for node, last, missing in self._run.rows(
            "SELECT node, last_src, missing::VARCHAR FROM waits WHERE since_s <= ? AND until_s > ?", (at, at)
        ):
            waiting.add(node)
            known = [*([] if last is None else [last]), *read_nodes(missing)]
            edges |= {(node, other) for other in known}
        for node, since_s, awaited in self._open_waits():
            if since_s <= at:
                waiting.add(node)
                edges |= {(node, other) for other in awaited}
        return sorted(edges), waiting

    def _of_fleet(self, name: str) -> list[tuple[int, float]]:
        return self._run.rows(
            "SELECT round, value FROM metrics WHERE node IS NULL AND name = ? AND value IS NOT NULL ORDER BY round",
            (name,),
        )

    @property
    def _end_s(self) -> float:
        ((end_s,),) = self._run.rows(
            "SELECT max(at_s) FROM (SELECT at_s FROM events UNION ALL SELECT at_s FROM metrics)"
        )
        return float(end_s or 0.0)

    def _outages(self) -> list[tuple[NodeId, float, float]]:
        """Return the times in which nodes were down or paused, as (node, begin, length) in seconds."""
        end_s = self._end_s
        return [(node, begin, min(end, end_s) - begin) for node, _, begin, end in read_outages(self._run.rows)]

    def _open_waits(self) -> list[tuple[NodeId, float, tuple[NodeId, ...]]]:
        """Return the waits that never ended, as (node, begin in seconds, awaited nodes)."""
        last: Mapping[NodeId, float] = dict(self._run.rows("SELECT node, max(until_s) FROM waits GROUP BY node"))
        found: dict[NodeId, tuple[NodeId, float, tuple[NodeId, ...]]] = {}
        for kept in kept_stalls(self._run.path):
            for now in kept["nodes"] if kept["finding"]["permanent"] else ():
                wait = now["wait"]
                since_ns = None if wait is None else wait.get("since_ns")
                if wait is not None and since_ns is not None and last.get(now["node"], 0.0) <= since_ns / 1e9:
                    found[now["node"]] = (now["node"], since_ns / 1e9, tuple(map(int, wait["awaited"])))
        return list(found.values())

    def _stalled(self) -> list[tuple[NodeId, float, float]]:
        end_s = self._end_s
        return [(node, since_s, max(0.0, end_s - since_s)) for node, since_s, _ in self._open_waits()]


def draw_partition(axes: Axes, counts: Sequence[Sequence[float]], classes: Sequence[object]) -> None:
    """Draw a dot for each client and class whose area is the number of examples.

    `counts` has a row for each client, with a number for each class.
    """
    most = max(max(row) for row in counts)
    dots = [(client, label, n) for client, row in enumerate(counts) for label, n in enumerate(row) if n]
    clients, labels, numbers = zip(*dots, strict=True)
    axes.scatter(clients, labels, s=[150 * n / most for n in numbers], color=TRAINED, linewidth=0)
    axes.set(xlabel="client", ylabel="class", xlim=(-0.7, len(counts) - 0.3), ylim=(-0.7, len(classes) - 0.3))
    _whole(axes.xaxis)
    if len(classes) <= MOST_LABELS // 3:
        axes.set_yticks(range(len(classes)), [str(name) for name in classes])


def _canvas(size: tuple[float, float], *, axes: bool = True) -> tuple[Figure, Any]:
    """Return an empty figure of a size in inches, which a notebook displays, and its axes."""
    from matplotlib.figure import Figure as Canvas

    class NotebookFigure(Canvas):
        """A figure that a notebook displays without a call."""

        def _repr_png_(self) -> bytes:
            picture = io.BytesIO()
            self.savefig(picture, format="png", dpi=100)
            return picture.getvalue()

    figure = NotebookFigure(figsize=size, layout="constrained")
    return figure, figure.add_subplot() if axes else None


def _whole(*along: Axis) -> None:
    """Set ticks only at whole numbers, for axes of nodes or rounds."""
    from matplotlib.ticker import MaxNLocator

    for axis in along:
        axis.set_major_locator(MaxNLocator(integer=True))


def _lanes(axes: Axes, spans: Sequence[tuple[NodeId, float, float]], color: str, label: str) -> None:
    """Draw bars for the time spans (node, begin, length in seconds), each in the lane of its node."""
    by_node: dict[NodeId, list[tuple[float, float]]] = {}
    for node, since_s, lasts_s in spans:
        by_node.setdefault(node, []).append((since_s, lasts_s))
    for number, (node, bars) in enumerate(sorted(by_node.items())):
        axes.broken_barh(bars, (node - 0.35, 0.7), color=color, linewidth=0, label=label if not number else None)
