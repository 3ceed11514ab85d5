"""The extent of a run's page: which nodes and rounds it displays, and at which moments its time slider stops.

Columns of numbers are also shortened here to the digits that a picture shows, and made ready for JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netdfl.core.types import NodeId
from netdfl.record.run import Run

Floats: TypeAlias = NDArray[np.float64]
Made: TypeAlias = dict[str, Any]
"""A part of the data of a run's page, as plain values for JSON."""
Plain: TypeAlias = list[float | int | None]
"""A list of numbers for JSON; None stands for a missing number."""

FIGURE, TIME = 4, 7
"""The number of significant digits of a metric's value on the page, and of a time in seconds."""


def shorten(values: Floats | Sequence[float | None], digits: int = FIGURE) -> Plain:
    """Round numbers to `digits` significant digits, whole ones to integers; None stands for NaN and infinity."""
    given = np.asarray(values, dtype=float)
    size = np.abs(given)
    usual = (size > SMALLEST) & (size < LARGEST)
    # An exact integer over an exact power of ten is the number that its decimal digits stand for.
    powers = np.clip(digits - 1 - np.floor(np.log10(np.where(usual, size, 1.0))), 0, MOST_POWER)
    scaled = np.where(usual, given, 0.0) * 10.0**powers
    cut = np.rint(scaled) / 10.0**powers
    rare = (~usual & (given != 0)) | (powers <= 0) | (powers >= MOST_POWER)
    made: Plain = [int(value) if value.is_integer() else value for value in cut.tolist()]
    for place in np.flatnonzero(rare).tolist():
        made[place] = _short(float(given[place]), digits)
    return made


SMALLEST, LARGEST, MOST_POWER = 1e-12, 1e12, 15


def _short(value: float, digits: int) -> float | int | None:
    if not math.isfinite(value):
        return None
    made = float(f"{value:.{digits}g}")
    return int(made) if made.is_integer() and abs(made) < 1e15 else made


def whole(values: Floats | Sequence[float]) -> Plain:
    """Return values as exact integers; None for NaN and infinity."""
    return [int(value) if math.isfinite(value) else None for value in np.asarray(values, dtype=float).tolist()]


class TextColumn:
    """A column of repeated texts, in which each distinct text is stored once and referred to by its index."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """The distinct texts seen so far, in the order of their indices."""
        return list(self._places)

    def places(self, texts: Iterable[str]) -> list[int]:
        """Return the index of each of `texts` among the distinct texts so far, after adding those that are new."""
        return [self._places.setdefault(text, len(self._places)) for text in texts]


MOST_MOMENTS = 300
MOST_NODES = 2000
"""The largest fleet of which every node is shown.

Of a larger one, the page shows evenly spaced nodes, and those that crashed or paused.
"""
MOST_CELLS = 60_000
"""The most values of one metric, displayed nodes times rounds, that a page has; for more, it omits rounds."""


@dataclass(frozen=True)
class Frame:
    """The extent of a run's page: the displayed nodes and rounds, and the stops of its time slider.

    Attributes:
        num_nodes: the number of nodes of the fleet.
        num_rounds: the number of rounds.
        nodes: the nodes that are displayed.
        rounds: the rounds for which each node's metrics are displayed.
        moments: the stops of the time slider: seconds since the start, or numbers of finished rounds if no time passed.
        by_round: whether the moments are numbers of rounds.
    """

    num_nodes: int
    num_rounds: int
    nodes: Sequence[NodeId]
    rounds: Sequence[int]
    moments: Floats
    by_round: bool

    @property
    def shows_all(self) -> bool:
        """Whether every node is shown."""
        return len(self.nodes) == self.num_nodes

    def to_json(self) -> Made:
        """Return these nodes, rounds and moments as plain values; None stands for all nodes, or all rounds."""
        return {
            "num_nodes": self.num_nodes,
            "num_rounds": self.num_rounds,
            "nodes": None if self.shows_all else list(self.nodes),
            "rounds": None if len(self.rounds) == self.num_rounds else list(self.rounds),
            "moments": shorten(self.moments, TIME + 4),
            "by_round": self.by_round,
        }


def find_frame(run: Run) -> Frame:
    """Return the nodes, rounds and moments that a page of `run` displays, as suits the run's size."""
    ((highest, rounds, end_s),) = run.rows(
        "SELECT coalesce(max(n), 0), coalesce(max(r) + 1, 0), coalesce(max(t), 0) FROM ("
        "SELECT max(node) AS n, max(round) AS r, max(at_s) AS t FROM metrics "
        "UNION ALL SELECT max(node), 0, max(at_s) FROM events "
        "UNION ALL SELECT max(node), 0, max(until_s) FROM waits "
        "UNION ALL SELECT max(greatest(src, dst)), max(round), max(greatest(sent_s, coalesce(arrived_s, 0))) "
        "FROM messages)"
    )
    num_nodes = max(highest + 1, run.graph["num_nodes"] if run.graph else 0)
    nodes = _some_nodes(run, num_nodes)
    step = max(1, -(-len(nodes) * rounds // MOST_CELLS))
    kept = sorted({*range(0, rounds, step), rounds - 1}) if rounds else []
    by_round = end_s <= 0
    return Frame(num_nodes, rounds, nodes, kept, _moments(rounds, end_s), by_round)


def _moments(rounds: int, end_s: float) -> Floats:
    """Return the stops of the time slider, rounded to digits that JSON holds exactly, so that counts agree."""
    if end_s <= 0:
        found = np.unique(np.linspace(0, rounds, min(rounds, MOST_MOMENTS) + 1).round())
    else:
        found = np.linspace(0, end_s, MOST_MOMENTS + 1)
        found[-1] = end_s * (1 + 1e-9)
    return np.asarray([float(f"{value:.{TIME + 4}g}") for value in found])


def _some_nodes(run: Run, num_nodes: int) -> list[NodeId]:
    if num_nodes <= MOST_NODES:
        return list(range(num_nodes))
    told = run.rows(
        "SELECT DISTINCT node FROM events WHERE node IS NOT NULL AND kind IN ('absent', 'crash', 'died', 'pause')"
    )
    some = {node for (node,) in told[: MOST_NODES // 4]}
    return sorted(some.union(range(0, num_nodes, -(-num_nodes // MOST_NODES))))
