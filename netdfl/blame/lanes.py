"""Lanes for a picture of a run: what some nodes did from a moment on, and the messages between them.

At most a fixed number of bars and messages is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from netdfl.core.fates import Fate, FateClass
from netdfl.core.types import NodeId
from netdfl.record.history import read_outages
from netdfl.record.kept_blame import BARS, MOST_ITEMS, ArrowsForm, BarsForm, LanesForm
from netdfl.record.run import Run

DIGITS = 10
_ROUNDS = (
    "SELECT node, at_s, max(value) FILTER (name = 'round_s'), coalesce(max(value) FILTER (name = 'train_s'), 0) "
    "FROM metrics WHERE list_contains($nodes, node) AND at_s >= $at AND name IN ('round_s', 'train_s') "
    "GROUP BY node, round, at_s HAVING count(*) FILTER (name = 'round_s') > 0"
)
_WAITS = (
    "SELECT node, since_s, until_s FROM waits "
    "WHERE list_contains($nodes, node) AND until_s >= $at AND until_s > since_s"
)
_MESSAGES = (
    "SELECT src, dst, sent_s, arrived_s, fate FROM messages WHERE coalesce(arrived_s, sent_s) >= $at "
    "AND list_contains($nodes, src) AND list_contains($nodes, dst) AND src <> dst"
)
_LOST = (FateClass.LOST, FateClass.UNDELIVERABLE)


class _Bar(NamedTuple):
    since: float
    node: NodeId
    until: float
    what: int


class _Arrow(NamedTuple):
    sent: float
    src: NodeId
    dst: NodeId
    arrived: float | None
    lost: bool


def lanes_of(
    run: Run, at_s: float, end_s: float, nodes: Sequence[NodeId], stuck: Mapping[NodeId, float], most: int = MOST_ITEMS
) -> LanesForm:
    """Return what `nodes` did from `at_s` on, as at most `most` bars and messages of a picture.

    Args:
        run: the run.
        at_s: where the lanes begin, in seconds of the run.
        end_s: the end of the run.
        nodes: the nodes that get a lane.
        stuck: the nodes that still waited at the end of the run, each with the time in s at which its stall began.
        most: the most bars and messages together.
    """
    bars = [*_rounds(run, at_s, nodes), *_waits(run, at_s, nodes)]
    bars += [*_stuck(bars, stuck, end_s, nodes), *_outages(run, at_s, end_s, nodes)]
    arrows = [
        _Arrow(sent, src, dst, arrived, arrived is None or Fate.read(fate).counts_as in _LOST)
        for src, dst, sent, arrived, fate in run.rows(_MESSAGES, {"at": at_s, "nodes": list(nodes)})
    ]
    bars = [bar for bar in bars if bar.until >= at_s]
    begun = sorted([*(bar.since for bar in bars), *(arrow.sent for arrow in arrows)])
    until_s = end_s
    if len(begun) > most:
        until_s = begun[most]
        bars = [bar for bar in bars if bar.since < until_s]
        arrows = [arrow for arrow in arrows if arrow.sent < until_s]
    return {
        "end_s": _short(end_s),
        "until_s": _short(until_s),
        "bars": _bars(sorted(bars, key=lambda bar: (bar.what, bar))),
        "messages": _arrows(sorted(arrows, key=lambda arrow: arrow[:3])),
    }


def _bars(rows: Sequence[_Bar]) -> BarsForm:
    return {
        "node": [row.node for row in rows],
        "since": [_short(row.since) for row in rows],
        "until": [_short(row.until) for row in rows],
        "what": [row.what for row in rows],
    }


def _arrows(rows: Sequence[_Arrow]) -> ArrowsForm:
    return {
        "src": [row.src for row in rows],
        "dst": [row.dst for row in rows],
        "sent": [_short(row.sent) for row in rows],
        "arrived": [None if row.arrived is None else _short(row.arrived) for row in rows],
        "lost": [row.lost for row in rows],
    }


def _short(time_s: float) -> float:
    return float(f"{time_s:.{DIGITS}g}")


def _rounds(run: Run, at_s: float, nodes: Sequence[NodeId]) -> Iterator[_Bar]:
    for node, until, took, trained in run.rows(_ROUNDS, {"at": at_s, "nodes": list(nodes)}):
        yield _Bar(until - took, node, until, BARS.index("mixing"))
        if trained > 0:
            yield _Bar(until - took, node, min(until, until - took + trained), BARS.index("training"))


def _waits(run: Run, at_s: float, nodes: Sequence[NodeId]) -> Iterator[_Bar]:
    for node, since, until in run.rows(_WAITS, {"at": at_s, "nodes": list(nodes)}):
        yield _Bar(since, node, until, BARS.index("waiting"))


def _stuck(
    bars: Sequence[_Bar], stuck: Mapping[NodeId, float], end_s: float, nodes: Collection[NodeId]
) -> Iterator[_Bar]:
    """Yield a bar of the picture for the endless wait of each node in `stuck`, which also has when its stall began.

    The bar lasts to the end of the run. It begins with the stall, or after the node's last bar in `bars`.
    """
    for node, began in stuck.items():
        since = max([began, *(bar.until for bar in bars if bar.node == node)])
        if node in nodes and since < end_s:
            yield _Bar(since, node, end_s, BARS.index("waiting"))


def _outages(run: Run, at_s: float, end_s: float, nodes: Collection[NodeId]) -> Iterator[_Bar]:
    for node, why, since, until in read_outages(run.rows):
        if node in nodes and until >= at_s:
            yield _Bar(since, node, min(until, end_s), BARS.index("paused" if why == "pause" else "down"))
