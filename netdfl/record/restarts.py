"""Which nodes crashed and lived again, and what it did to the fleet's push-sum mass."""

from __future__ import annotations

from netdfl.core.types import NodeId
from netdfl.record.forms import read_details
from netdfl.record.run import Run

_KINDS = ("crash", "died", "restart", "rejoin")


def find_restarts(run: Run) -> list[dict[str, object]]:
    """Every restart in order of time: node, when it crashed and returned (s), and with which state.

    Where its state was lost: `rejoined_in` is its round, `model_of` the neighbor whose model it began with (None:
    nobody's, and `reason` says why), `lost_weight` the push-sum weight that it held when it crashed (None where it was
    killed), and `new_weight` the one that it began with; both None for methods without weights.
    """
    rows = run.rows(
        "SELECT kind, node, round, at_s, details FROM events WHERE kind IN ? AND node IS NOT NULL", [_KINDS]
    )
    crashed: dict[NodeId, dict[str, object]] = {}
    back: dict[NodeId, dict[str, object]] = {}
    found: list[dict[str, object]] = []
    for kind, node, round, at_s, details in sorted(rows, key=lambda row: (row[3], _KINDS.index(row[0]))):
        said = read_details(details)
        if kind == "crash":
            crashed[node] = {"round": round, "crashed_s": at_s, "lost_weight": said.get("weight")}
        elif kind == "died":  # not as scripted: nobody knows what it held
            crashed.setdefault(node, {"round": round, "crashed_s": at_s, "lost_weight": None})
        elif kind == "restart":
            back[node] = _kept(node, at_s, crashed.pop(node, {"round": round, "crashed_s": None, "lost_weight": None}))
            found.append(back[node])
        elif node in back:
            back[node] |= {"state": "lost", "rejoined_in": round, "model_of": said.get("source")}
            back[node] |= {"new_weight": said.get("weight"), "reason": said.get("reason", "")}
    return [each if each["state"] == "lost" else _without_losses(each) for each in found]


def _kept(node: NodeId, at_s: float, crash: dict[str, object]) -> dict[str, object]:
    return {"node": node, "state": "kept", **crash, "returned_s": at_s}


def _without_losses(restart: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in restart.items() if key != "lost_weight"}
