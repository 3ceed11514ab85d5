"""The metrics of one cell (a single run of a study), as named numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

from netdfl.core.fates import NOT_DELIVERED
from netdfl.core.types import Json
from netdfl.record.database import COLUMNS, TableName
from netdfl.record.judge import SHARES as PERCENTAGES
from netdfl.record.judge import WELL
from netdfl.record.run import Run
from netdfl.record.segments import pieces
from netdfl.record.store import STORE
from netdfl.study.cells import CellResult

WARNED = ("collapsed", "diverged")
SHARES = ("deadlock", "stalled", "not_passed", "died", *WARNED)
"""Metrics that are 0 or 1 in a single run, and therefore a share over several runs."""
PERCENT = frozenset({"not_delivered", "mean_local_accuracy", "mean_personal_accuracy"}) | PERCENTAGES
"""Metrics from 0 to 1 that tables and plots show as percentages; CSV files have them as numbers."""
BYTES = frozenset({"bytes_sent"})
"""Metrics in bytes; axes show them in kB, MB and so on."""
AVERAGE, EACH = "average model", "nodes' own models"
"""The names of the models that an accuracy or a loss on test data judges."""
_WORDS: Mapping[str, str] = {
    "error": "error (distance to the known answer)",
    "virtual_duration_s": "virtual duration (s)",
    "duration_s": "duration (s)",
    "rounds_per_s": "rounds per s",
    "stalled": "stalled (share of runs)",
    "deadlock": "deadlock (share of runs)",
}


def words(name: str) -> str:
    """Return a metric's name as text for people."""
    return _WORDS.get(name, name.replace("_", " "))


def words_of(name: str, whose: str) -> str:
    """Return a metric's name as text for people; for a metric on test data, `whose` names the models that it judges."""
    return f"{words(name)} ({whose})" if is_of_models(name) else words(name)


def is_of_models(name: str) -> bool:
    """Return whether a metric judges models by test data: the average model, or each node's own."""
    return name.startswith("test_")


NEVER_NEGATIVE = ("rounds", "error", "consensus_distance", "smallest_weight", "largest_weight", "weight_sum")


def has_no_negatives(name: str) -> bool:
    """Return whether a metric can't be below 0: a duration, a rate, a number, a distance or a push-sum weight."""
    return name in BYTES or name in NEVER_NEGATIVE or ("_s_" in f"{name}_" and not is_of_models(name))


def figures_of(ran: CellResult) -> dict[str, float]:
    """Return the metrics of a run that left a result, by name.

    From `result.json`: test_accuracy, test_loss, train_loss, consensus_distance, weight_sum, bytes_sent, duration_s,
    virtual_duration_s. `lost`, `undeliverable`, `late`, `duplicate`, `refused` and `unfinished` are shares of the
    messages sent (defined in `netdfl.core.fates`), `not_delivered` is their sum.

    `deadlock` is 1 if there was one, `stalled` if nodes still waited at the end, `not_passed` if the verdict is neither
    pass nor done, `died` if a node died, `collapsed` and `diverged` if the run warns of it. `timeouts` is the share of
    waits for messages that a deadline ended. `rounds` is the mean number of rounds that nodes have finished, and
    `rounds_per_s` is this number per second of the run, in virtual time if it was simulated.

    Further, the last value of each of the fleet's own metrics, such as `error`. For push-sum, `smallest_weight` and
    `largest_weight` are taken over all nodes and rounds. `round_s_median` and `round_s_p95` are quantiles of the length
    of rounds, and `missing` is the mean number of neighbors whose message a node lacked in a round.
    """
    result = ran.result or {}
    figures = _metrics(ran.path)
    names = (
        "test_loss",
        "train_loss",
        "consensus_distance",
        "weight_sum",
        "bytes_sent",
        "virtual_duration_s",
        "duration_s",
    )
    figures |= {name: result[name] for name in names if result.get(name) is not None}
    accuracy = (result.get("test_accuracy") or {}).get("average_model", {}).get("last")
    if accuracy is not None:
        figures["test_accuracy"] = accuracy
    figures |= _ending(result)
    if "timeouts" in result:
        figures["timeouts"] = result["timeouts"]
    messages = result.get("messages", {})
    if sent := messages.get("sent", 0):
        figures["not_delivered"] = 1 - messages["delivered"] / sent
        figures |= {name: messages[name] / sent for name in NOT_DELIVERED}
    return figures | _pace(ran.path, result)


def _ending(result: Json) -> dict[str, float]:
    """Return flags, 0 or 1, for the run's outcome and its warnings."""
    stalls, deadlocks = result.get("stalls", ()), result.get("deadlocks", ())
    warned = {caution["kind"] for caution in result.get("warnings", ())}
    return {
        "deadlock": float(bool(deadlocks)),
        "stalled": float(any(not stall.get("over") for stall in (*stalls, *deadlocks))),
        "not_passed": float(result.get("verdict") not in WELL),
        "died": float(bool(result.get("died"))),
        **{kind: float(kind in warned) for kind in WARNED},
    }


def _pace(path: Path, result: Mapping[str, object]) -> dict[str, float]:
    try:
        nodes = json.loads((path / "fleet.json").read_text(encoding="utf-8"))["nodes"]
    except (OSError, ValueError, KeyError):
        return {}
    rounds = sum(node["round"] + (node["phase"] == "finished") for node in nodes) / max(1, len(nodes))
    seconds = result.get("virtual_duration_s") or result.get("duration_s") or 0.0
    return {"rounds": rounds} | ({"rounds_per_s": rounds / seconds} if seconds else {})


def _metrics(path: Path) -> dict[str, float]:
    """Return the last finite value of each fleet metric, and summaries of the nodes' weights, rounds and messages.

    `missing` is the mean number of neighbors whose message a node lacked in a round.
    """
    found: dict[str, float | None] = {}
    nodes: dict[str, list[float]] = {"weight": [], "round_s": []}
    for row in rows(path, "metrics"):
        if row["node"] is None:
            found[row["name"]] = row["value"]
        elif row["name"] in nodes:
            nodes[row["name"]].append(row["value"])
    if weights := nodes["weight"]:
        found |= {"smallest_weight": min(weights), "largest_weight": max(weights)}
    if times := sorted(nodes["round_s"]):
        found |= {"round_s_median": median(times), "round_s_p95": times[math.ceil(0.95 * len(times)) - 1]}
        missing = sum(len(row["details"]["awaited"]) for row in rows(path, "events") if row["kind"] == "missing")
        found["missing"] = missing / len(times)
    return {name: value for name, value in found.items() if value is not None}


def _from_segments(path: Path, table: TableName) -> Iterator[Json]:
    for row in Run(path).rows(f"SELECT {', '.join(COLUMNS[table])} FROM {table}"):
        found = dict(zip(COLUMNS[table], row, strict=True))
        yield found | {"details": json.loads(found["details"])} if "details" in found else found


def rows(path: Path, table: TableName) -> Iterator[Json]:
    """Yield the rows of a table in the record of the run at `path`: of one file if simulated, else of one per node."""
    found = pieces(path / STORE, table)
    if found.segments:
        yield from _from_segments(path, table)
        return
    for file in found.lines:
        with file.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
