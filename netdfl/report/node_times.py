"""What the rounds of each node were spent on, drawn for fleets of any size, in units that show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netdfl.record.time_spent import seconds
from netdfl.report.figures import draw_bars

MOST_BARS = 150
UNITS = ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds"))
NO_TIME = "Rounds took no virtual time: the scenario has neither compute time nor delays that would take any"


class NodeTime(NamedTuple):
    """Seconds of one node's mean round: all of them, those of training, those of waiting."""

    node: int
    train: float
    wait: float
    whole: float


def say_rounds(times: Sequence[NodeTime]) -> str:
    """The mean round of the median node and of the slowest, in a sentence."""
    slowest = max(times, key=lambda each: each.whole)
    if not slowest.whole:
        return f"{NO_TIME}."
    middle = seconds(float(np.median([each.whole for each in times])))
    return f"A round took {middle} at the median node, {seconds(slowest.whole)} at the slowest, node {slowest.node}."


def draw_node_times(times: Sequence[NodeTime]) -> tuple[str, str] | None:
    """A drawing with its caption: a bar a node, or, of large fleets, a bar for some; None where no time passed."""
    longest = max(each.whole for each in times)
    if not longest:
        return None
    scale, unit = next((u for u in UNITS if longest >= u[0]), UNITS[-1])
    highest = max(each.node for each in times)
    if highest < MOST_BARS:
        x_label, caption = "node", "Mean over the rounds of each node."
        columns = np.zeros((3, highest + 1))
        for each in times:
            columns[:, each.node] = each[1:]
    else:
        size = -(-len(times) // MOST_BARS)
        some = "each node" if size == 1 else f"{size} nodes each"
        x_label = f"{some}, those with the shortest rounds first"
        caption = f"Mean over the rounds of {some}: all {len(times):,} nodes by the length of their rounds."
        columns = _grouped(np.asarray([each[1:] for each in sorted(times, key=lambda t: (t.whole, t.node))]).T, size)
    train, wait, whole = columns / scale
    parts = {"training": train, "waiting": wait, "the rest": np.maximum(0, whole - train - wait)}
    return draw_bars(parts, x_label, f"{unit} per round"), caption


def _grouped(columns: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """The means of `size` columns each, the last of what is left."""
    starts = np.arange(0, columns.shape[1], size)
    return np.add.reduceat(columns, starts, axis=1) / np.diff([*starts, columns.shape[1]])


def blocks(matrix: NDArray[np.float64], most: int = MOST_BARS) -> tuple[NDArray[np.float64], int]:
    """A square matrix, or the sums of its blocks where it has more than `most` rows, and the rows of a block."""
    size = -(-len(matrix) // most)
    if size == 1:
        return matrix, 1
    starts = np.arange(0, len(matrix), size)
    sums = np.add.reduceat(np.add.reduceat(np.nan_to_num(matrix), starts, axis=0), starts, axis=1)
    return np.where(sums > 0, sums, np.nan), size
