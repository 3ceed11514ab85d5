"""What all parts of the page need to know first: how many nodes, which of them are shown, until when, by what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from netdfl.core.types import NodeId
from netdfl.record.run import Run
from netdfl.report.data.columns import TIME, Floats, Made, shorten

MOST_MOMENTS = 300
MOST_NODES = 2000
"""Of larger fleets some nodes are shown, evenly spaced, and those of which something is told."""
MOST_CELLS = 60_000
"""Numbers by node and round are kept for as many rounds as these allow."""


@dataclass(frozen=True)
class Frame:
    """`nodes` are those that are shown, `rounds` those of which each node's figures are kept.

    `moments` are where the handle of time can stand: seconds since the start, or, where no time passed, how many
    rounds are over (`by_round`).
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
        """As the page reads it."""
        return {
            "num_nodes": self.num_nodes,
            "num_rounds": self.num_rounds,
            "nodes": None if self.shows_all else list(self.nodes),
            "rounds": None if len(self.rounds) == self.num_rounds else list(self.rounds),
            "moments": shorten(self.moments, TIME + 4),
            "by_round": self.by_round,
        }


def find_frame(run: Run) -> Frame:
    """Look at how large `run` is."""
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
    """Moments that JSON gives back to the last digit, so that what is counted up to one is what the page says."""
    if end_s <= 0:
        found = np.unique(np.linspace(0, rounds, min(rounds, MOST_MOMENTS) + 1).round())
    else:
        found = np.linspace(0, end_s, MOST_MOMENTS + 1)
        found[-1] = end_s * (1 + 1e-9)
    return np.asarray([float(f"{value:.{TIME + 4}g}") for value in found])


def _some_nodes(run: Run, num_nodes: int) -> list[NodeId]:
    if num_nodes <= MOST_NODES:
        return list(range(num_nodes))
    told = run.rows("SELECT DISTINCT node FROM events WHERE node IS NOT NULL AND kind IN ('crash', 'died', 'pause')")
    some = {node for (node,) in told[: MOST_NODES // 4]}
    return sorted(some.union(range(0, num_nodes, -(-num_nodes // MOST_NODES))))
