"""Figures by round: of the fleet, and of its nodes the mean, the spread, and who is best and worst."""

from __future__ import annotations

import numpy as np

from netdfl.record.run import Run
from netdfl.report.data.by_node import own_of_nodes
from netdfl.report.data.columns import TIME, Floats, Made, shorten, whole
from netdfl.report.data.frame import Frame

SPREAD = ("test_accuracy", "train_loss", "weight", "round_s", "train_s", "wait_s")
MOST_POINTS = 1000


def fleet_curves(run: Run, frame: Frame) -> Made:
    """By name, what was measured of the whole fleet: round, time, bytes sent until then, value."""
    rows = run.rows(
        "SELECT name, round, at_s, value FROM metrics WHERE node IS NULL AND value IS NOT NULL "
        "ORDER BY name, at_s, round"
    )
    at, table = ("sent_s", "messages") if run.sampling.is_all else ("until_s", "round_totals")
    when = "round + 1" if frame.by_round else at
    sent = run.columns(f"SELECT {when} AS at, sum(nbytes)::BIGINT AS nbytes FROM {table} GROUP BY 1 ORDER BY 1")
    total = np.concatenate(([0.0], np.cumsum(sent["nbytes"])))
    found: Made = {}
    for name in dict.fromkeys(row[0] for row in rows):
        points = np.asarray([row[1:] for row in rows if row[0] == name], dtype=float)
        points = points[:: -(-len(points) // MOST_POINTS)]
        until = points[:, 0] + 1 if frame.by_round else points[:, 1]
        found[name] = {
            "round": whole(points[:, 0]),
            "at_s": shorten(points[:, 1], TIME),
            "nbytes": whole(total[np.searchsorted(sent["at"], until, side="right")]),
            "value": shorten(points[:, 2], 5),
        }
    return found


def spreads(run: Run) -> Made:
    """By name, what was measured of each node: by round the mean, median, lowest and highest, and whose these are."""
    rows = run.rows(
        "SELECT name, round, median(at_s), avg(value), median(value), min(value), max(value), "
        "arg_min(node, (value, node)), arg_max(node, (value, -node)) FROM metrics "
        "WHERE node IS NOT NULL AND value IS NOT NULL AND list_contains(?, name) "
        "GROUP BY name, round ORDER BY name, round",
        [[*SPREAD, *own_of_nodes(run)]],
    )
    found: Made = {}
    for name in dict.fromkeys(row[0] for row in rows):
        table: Floats = np.asarray([row[1:] for row in rows if row[0] == name], dtype=float)
        table = table[:: -(-len(table) // MOST_POINTS)]
        found[name] = {
            "round": whole(table[:, 0]),
            "at_s": shorten(table[:, 1], TIME),
            **{
                key: shorten(table[:, place], 5) for place, key in enumerate(("mean", "median", "low", "high"), start=2)
            },
            "low_node": whole(table[:, 6]),
            "high_node": whole(table[:, 7]),
        }
    return found
