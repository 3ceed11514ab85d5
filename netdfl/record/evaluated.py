"""The fleet's evaluations, read from rows of the store, and numbers computed from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from netdfl.core.types import Json
from netdfl.record.forms import PartitionForm
from netdfl.record.run import Run


class EvaluatedValue(NamedTuple):
    """One evaluation of a fleet metric; `value` is None if it was not finite."""

    round: int
    at_s: float
    value: float | None


Series: TypeAlias = Mapping[str, Sequence[EvaluatedValue]]
"""The evaluations of each metric, by its name, in order of rounds."""


def all_evaluations(run: Run) -> dict[str, list[EvaluatedValue]]:
    """Return every evaluation of every fleet metric, by name, in the order of rounds."""
    return _by_name(run, _OWN) | _by_name(run, _OF_FLEET)


def _by_name(run: Run, sql: str) -> dict[str, list[EvaluatedValue]]:
    found: dict[str, list[EvaluatedValue]] = {}
    for name, *row in run.rows(sql):
        found.setdefault(name, []).append(EvaluatedValue(*row))
    return found


_OF_FLEET = "SELECT name, round, at_s, value FROM metrics WHERE node IS NULL ORDER BY round, at_s"
_OWN = (
    "SELECT 'mean_' || name, round, max(at_s), avg(value) FROM metrics WHERE node IS NOT NULL "
    "AND name LIKE 'personal_%' GROUP BY name, round ORDER BY name, round"
)
"""A query for the means of `personal_` metrics over nodes, which each node measures on its own examples."""


def chance_of(partition: PartitionForm | Json | None) -> float:
    """Return the accuracy of guessing among the classes of a run's `partition`; 0 for data without classes."""
    return 1 / len(partition["classes"]) if partition is not None and partition["classes"] else 0.0


def last_of(series: Series, name: str) -> float | None:
    """Return the last value of a metric; None if it was never evaluated or not finite."""
    found = series.get(name)
    return found[-1].value if found else None


def values_of(series: Series, name: str) -> list[float]:
    """Return the finite values of a metric."""
    return [each.value for each in series.get(name, ()) if each.value is not None]


def digest_of(accuracy: Sequence[EvaluatedValue]) -> dict[str, float | None]:
    """Return the last, the best, and the mean of the last five of the finite values of `accuracy`.

    None stands for a missing value.
    """
    values = [evaluation.value for evaluation in accuracy if evaluation.value is not None]
    if not values:
        return {"last": None, "best": None, "mean_last_5": None}
    tail = values[-5:]
    return {"last": values[-1], "best": max(values), "mean_last_5": math.fsum(tail) / len(tail)}


def course_of(found: Sequence[EvaluatedValue]) -> dict[str, float | None]:
    """Return a metric's last value, minimum, maximum, and mean of the last five, all over finite values."""
    digest = digest_of(found)
    least = min((each.value for each in found if each.value is not None), default=None)
    return {"last": digest["last"], "least": least, "most": digest["best"], "mean_last_5": digest["mean_last_5"]}


def reach_of(run: Run, series: Series, target: float | Mapping[str, Any]) -> dict[str, object]:
    """Return the round, bytes and seconds at which the fleet first reached `target`; None for each if it never did.

    A `target` is an accuracy, or a mapping with `metric` and `at_least` or `at_most`.
    """
    if isinstance(target, Mapping):
        name, least, most = target["metric"], target.get("at_least"), target.get("at_most")
        asked = {"metric": name, **({"at_most": most} if least is None else {"at_least": least})}
    else:
        name, least, most, asked = "test_accuracy", target, None, {"accuracy": target}
    low, high = -math.inf if least is None else least, math.inf if most is None else most
    for found in series.get(name, ()):
        if found.value is not None and low <= found.value <= high:
            until = "SELECT coalesce(sum(nbytes), 0)::BIGINT FROM round_totals WHERE round <= ?"
            ((sent,),) = run.rows(until, [found.round])
            return {**asked, "round": found.round, "bytes": sent, "seconds": found.at_s}
    return {**asked, "round": None, "bytes": None, "seconds": None}
