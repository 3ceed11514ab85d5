"""A run's figures as the curves of a tracker: the fleet's, those of few nodes, and means over the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from netdfl.core.errors import InputError
from netdfl.record.run import Run

MOST_NODES = 32
"""Of more nodes than these no curves of single nodes are made."""


class Point(NamedTuple):
    """A value of a curve, in a round, at a time since the start."""

    curve: str
    round: int
    at_s: float
    value: float


def points(run: Run, below: int | None = None) -> Iterator[Point]:
    """All points of `run`, by round; means over nodes only of rounds `below`, which all nodes have ended."""
    for at_s, round, name, value in run.rows(
        "SELECT at_s, round, name, value FROM metrics WHERE node IS NULL AND value IS NOT NULL ORDER BY round, name"
    ):
        yield Point(f"fleet/{name}", round, at_s, value)
    whole = "" if below is None else f"AND round < {int(below)}"
    for at_s, round, name, mean, low, high in run.rows(
        "SELECT max(at_s), round, name, avg(value), min(value), max(value) FROM metrics "
        f"WHERE node IS NOT NULL AND value IS NOT NULL {whole} GROUP BY round, name ORDER BY round, name"
    ):
        for what, value in (("mean", mean), ("lowest", low), ("highest", high)):
            yield Point(f"nodes_{what}/{name}", round, at_s, value)
    if run.graph is not None and run.graph["num_nodes"] > MOST_NODES:
        return
    for at_s, node, round, name, value in run.rows(
        "SELECT at_s, node, round, name, value FROM metrics WHERE node IS NOT NULL AND value IS NOT NULL "
        "ORDER BY round, node, name"
    ):
        yield Point(f"node_{node:03d}/{name}", round, at_s, value)


def missing(package: str, extra: str) -> InputError:
    """What to say where a tracker's package is not there."""
    return InputError(f"{package} is not installed; pip install 'netdfl[{extra}]'")
