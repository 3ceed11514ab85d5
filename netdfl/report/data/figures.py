"""Metrics by round for a run's page: of the fleet, of each node and their spread, and how nodes spent their time."""

from __future__ import annotations

import numpy as np

from netdfl.record.run import Run
from netdfl.report.data.frame import FIGURE, TIME, Floats, Frame, Made, shorten, whole

KEPT = ("train_loss", "test_accuracy", "weight", "round_s", "train_s", "bytes_sent")
"""Metrics that a run's page shows for each node, beside `ends`, the time at which the node finished the round."""
MOST_OWN = 6
"""The most metrics of a user's own task, like `test_mae`, that the page shows for each node."""


def own_of_nodes(run: Run) -> list[str]:
    """Return the names of the test metrics, other than accuracy, that are recorded for single nodes."""
    rows = run.rows(
        "SELECT DISTINCT name FROM metrics WHERE node IS NOT NULL AND name LIKE 'test@_%' ESCAPE '@' "
        f"AND name <> 'test_accuracy' ORDER BY name LIMIT {MOST_OWN}"
    )
    return [name for (name,) in rows]


def node_matrices(run: Run, frame: Frame) -> Made:
    """Return, by metric, the values of each displayed node in each displayed round, as one list, node after node.

    The key `ends` has the times at which nodes finished rounds.
    """
    kept = [*KEPT, *own_of_nodes(run)]
    table = run.columns(
        "SELECT node, round, list_position(?, name) - 1 AS metric, value, at_s FROM metrics "
        "WHERE node IS NOT NULL AND list_contains(?, name)",
        [kept, kept],
    )
    row = _places(frame.nodes, frame.num_nodes)[table["node"].astype(int)]
    column = _places(frame.rounds, frame.num_rounds)[table["round"].astype(int)]
    shown = (row >= 0) & (column >= 0)
    row, column = row[shown], column[shown]
    metric, value, at_s = (table[name][shown] for name in ("metric", "value", "at_s"))
    shape = (len(frame.nodes), len(frame.rounds))
    found: Made = {}
    for number, name in enumerate(kept):
        of = metric == number
        if of.any():
            matrix = np.full(shape, np.nan)
            matrix[row[of], column[of]] = value[of]
            found[name] = whole(matrix.ravel()) if name == "bytes_sent" else shorten(matrix.ravel(), FIGURE)
    if "round_s" in found:
        of = metric == KEPT.index("round_s")
        ends = np.full(shape, np.nan)
        ends[row[of], column[of]] = at_s[of]
        found["ends"] = shorten(ends.ravel(), TIME)
    return found


def _places(shown: object, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return, for each number from 0 to `size` - 1, its index in the sequence `shown`; -1 if it is not in it."""
    places = np.full(max(1, size), -1)
    numbers = np.asarray(shown, dtype=int)
    places[numbers] = np.arange(len(numbers))
    return places


SPENT = ("compute", "link", "late", "behind", "rest")


def time_by_node(run: Run, frame: Frame) -> Made | None:
    """Return the seconds that each displayed node spent over all rounds, by what it spent them on.

    The uses are computing; waiting for a message that was on its link; waiting in vain until a deadline, or for a lost
    message; waiting for nodes that had not sent yet; and anything else. None for a run that recorded only some of its
    messages: the message that ended a wait may have no row.
    """
    if not run.sampling.is_all:
        return None
    rows = run.rows(
        "WITH came AS (SELECT w.node, w.until_s - w.since_s AS s, w.ended, "
        "min(m.arrived_s - m.sent_s) AS way FROM waits w LEFT JOIN messages m ON w.ended = 'came' "
        "AND m.src = w.last_src AND m.dst = w.node AND m.round = w.round AND m.step = w.step AND m.kind = w.kind "
        "WHERE w.until_s > w.since_s GROUP BY w.node, w.round, w.step, w.kind, w.since_s, w.until_s, w.ended), "
        "waited AS (SELECT node, sum(s) AS wait, sum(CASE WHEN ended = 'came' THEN least(s, coalesce(way, 0)) "
        "ELSE 0 END) AS link, sum(CASE WHEN ended <> 'came' THEN s ELSE 0 END) AS late FROM came GROUP BY node), "
        "spent AS (SELECT node, sum(value) FILTER (name = 'round_s') AS whole, "
        "sum(value) FILTER (name = 'train_s') AS train FROM metrics WHERE node IS NOT NULL GROUP BY node) "
        "SELECT node, coalesce(train, 0), coalesce(link, 0), coalesce(late, 0), coalesce(wait - link - late, 0), "
        "greatest(0, whole - coalesce(train, 0) - coalesce(wait, 0)) FROM spent LEFT JOIN waited USING (node) "
        "WHERE whole > 0 ORDER BY node"
    )
    shown = set(frame.nodes)
    rows = [row for row in rows if row[0] in shown]
    if not rows:
        return None
    table = np.asarray(rows, dtype=float)
    return {"node": whole(table[:, 0])} | {
        name: shorten(table[:, place], FIGURE) for place, name in enumerate(SPENT, start=1)
    }


SPREAD = ("test_accuracy", "train_loss", "weight", "round_s", "train_s", "wait_s")
MOST_POINTS = 1000


def fleet_curves(run: Run, frame: Frame) -> Made:
    """Return each metric of the whole fleet as columns: round, time, bytes that all nodes had sent by then, value."""
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
    """Return the spread of each metric over the nodes, by round: mean, median, extremes and the nodes with these."""
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
