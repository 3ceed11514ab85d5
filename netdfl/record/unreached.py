"""Scripted events that a run ended before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from pydantic import TypeAdapter, with_config
from typing_extensions import TypedDict

from netdfl.core.types import Json, NodeId
from netdfl.record.forms import OPEN, Count, Nanoseconds, NodeField, read_lines
from netdfl.record.run import Run


@with_config(OPEN)
class ScheduledForm(TypedDict):
    """A compiled event, as `events.jsonl` holds it."""

    action: str
    source: Count
    at_ns: NotRequired[Nanoseconds]
    at_round: NotRequired[Count]
    nodes: NotRequired[list[NodeField]]


_SCRIPTED: TypeAdapter[ScheduledForm] = TypeAdapter(ScheduledForm)


def find_unreached(run: Run) -> dict[str, object] | None:
    """Entries of `events` of which nothing came, as no node lived so long: `count`, `first`, `ended_s`; None: all came.

    `first` is the earliest compiled event of these, as `events.jsonl` has it.
    """
    events: list[Any] = read_lines(run.path / "events.jsonl", _SCRIPTED)
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


def _came(event: Json, rounds: Mapping[NodeId, int], ended_s: float) -> bool:
    if "at_round" not in event:
        return bool(event["at_ns"] <= ended_s * 1e9)
    nodes: Sequence[NodeId] = event.get("nodes") or list(rounds)
    return any(rounds.get(node, -1) >= event["at_round"] for node in nodes)
