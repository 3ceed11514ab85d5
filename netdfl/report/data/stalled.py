"""The fleet's stalls on a run's page: for each, a sentence, the wait-for graph, and the evidence."""

from __future__ import annotations

from collections.abc import Mapping

from netdfl.core.clock import NS_PER_S
from netdfl.record.kept_stalls import FindingForm, StallForm, kept_stalls
from netdfl.record.run import Run
from netdfl.report.data.frame import Made

MOST_NODES = 200
MOST_STALLS = 20


def stalls(run: Run) -> list[Made]:
    """Return each stall of the fleet that the run stored, with its wait-for graph."""
    result = run.result if run.finished else {}
    last: dict[tuple[object, ...], Made] = {
        (each.get("cause"), each.get("round"), tuple(each.get("roots", ()))): each
        for each in (*result.get("deadlocks", ()), *result.get("stalls", ()))
    }
    return [_stall(run, kept, last) for kept in kept_stalls(run.path)[:MOST_STALLS]]


def _stall(run: Run, kept: StallForm, last: Mapping[tuple[object, ...], Made]) -> Made:
    found = kept["finding"]
    order = dict.fromkeys([*found["roots"], *found["culprits"], *found["behind"]])
    nodes = list(order)[:MOST_NODES]
    shown = set(nodes)
    waits = [
        [now["node"], int(source)]
        for now in kept["nodes"]
        if now["wait"] is not None and now["node"] in shown
        for source in now["wait"]["awaited"]
        if int(source) in shown
    ]
    since = {
        str(now["node"]): now["wait"]["since_ns"] / NS_PER_S
        for now in kept["nodes"]
        if now["wait"] is not None and "since_ns" in now["wait"] and now["node"] in shown
    }
    ended = last.get((found.get("cause"), found["round"], tuple(found["roots"])), {})
    return {
        **{name: found[name] for name in ("round", "roots", "culprits", "witness", "began_s", "found_s", "permanent")},
        "text": ended.get("text", found["text"]),
        "cause": str(found.get("cause", "")),
        "nodes": nodes,
        "num_nodes": len(order),
        "waits": waits,
        "since": since,
        "until_s": _ended_s(run, found) if ended.get("over") else ended.get("until_s"),
        "over": bool(ended.get("over", False)),
    }


def _ended_s(run: Run, found: FindingForm) -> float | None:
    """Return the time in s at which a stall that is over ended: the last of its root nodes then stopped waiting.

    None if the record has no such wait. `found` is the stall as the diagnosis found it.
    """
    ((end_s,),) = run.rows(
        "SELECT max(until_s) FROM waits WHERE list_contains($roots, node) AND since_s <= $began AND until_s > $began",
        {"roots": found["roots"], "began": found["began_s"]},
    )
    return None if end_s is None else float(end_s)
