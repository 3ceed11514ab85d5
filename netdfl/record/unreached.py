"""Scripted events that a run ended before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from netdfl.core.types import NodeId
from netdfl.record.run import Run


def find_unreached(run: Run) -> dict[str, Any] | None:
    """Entries of `events` of which nothing came, as no node lived so long: `count`, `first`, `ended_s`; None: all came.

    `first` is the earliest compiled event of these, as `events.jsonl` has it.
    """
    path = run.path / "events.jsonl"
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    if not events:
        return None
    rows = run.rows(
        "SELECT node, max(round), max(at_s) FROM (SELECT node, round, at_s FROM events UNION ALL "
        "SELECT node, round, at_s FROM metrics) WHERE node IS NOT NULL GROUP BY node"
    )
    rounds = {node: round for node, round, _ in rows}
    ended_s = max((at_s for *_, at_s in rows), default=0.0)
    came = {event["source"] for event in events if _came(event, rounds, ended_s)}
    missed = [event for event in events if event["source"] not in came]
    if not missed:
        return None
    return {"count": len({event["source"] for event in missed}), "first": missed[0], "ended_s": ended_s}


def _came(event: Mapping[str, Any], rounds: Mapping[NodeId, int], ended_s: float) -> bool:
    if "at_round" not in event:
        return bool(event["at_ns"] <= ended_s * 1e9)
    nodes: Sequence[NodeId] = event.get("nodes") or list(rounds)
    return any(rounds.get(node, -1) >= event["at_round"] for node in nodes)
