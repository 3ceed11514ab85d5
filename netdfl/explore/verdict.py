"""The verdict on an explored run: what `netdfl.record.result` finds in a run's files, found in rows in memory.

A test holds the two to each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite

from netdfl.core.fates import Fate, FateClass, MessageCounts
from netdfl.core.types import Kind, NodeId, Scalar
from netdfl.diagnosis.finding import Cause, Finding
from netdfl.explore.rows import Noted, Rows
from netdfl.record.base import Ended
from netdfl.record.cautions import Course, HeldWeight, by_kind, find_cautions
from netdfl.record.judge import FIGURES, Findings, Judgement, is_measured, judge
from netdfl.record.messages import shares
from netdfl.record.result import GROWING
from netdfl.scenario.model.schema import Scenario

_FIGURES = {"mean_local": "mean_local_accuracy", "mean_personal": "mean_personal_accuracy"}
"""Figures of `expect` that have another name among the metrics."""


def count(rows: Rows) -> MessageCounts:
    """Messages by class."""
    found: Counter[FateClass] = Counter()
    for fate, number in Counter(message.fate for message in rows.messages).items():
        found[Fate.read(fate).counts_as] += number
    return MessageCounts(sent=len(rows.messages), **{name.value: number for name, number in found.items()})


def figures_of(rows: Rows, counts: MessageCounts, length_ns: int) -> dict[str, float | None]:
    """The final numbers, by the names that `expect` knows."""
    series = _series(rows)
    names = ("test_accuracy", "mean_local", "mean_personal", "test_loss", "error", "consensus_distance", "weight_sum")
    found: dict[str, float | None] = {name: _last(series.get(_FIGURES.get(name, name), ())) for name in names}
    losses = _last_losses(rows)
    timed_out, waits = _timeouts(rows)
    found["train_loss"] = sum(losses) / len(losses) if losses else None
    found["bytes_sent"] = sum(message.nbytes for message in rows.messages)
    found["virtual_duration_s"] = length_ns / 1e9
    found["timeouts"] = timed_out / max(1, waits)
    own = {name: _last(values) for name, values in series.items() if is_measured(name) and name not in FIGURES}
    return found | own | shares(counts)


def judge_rows(
    scenario: Scenario,
    rows: Rows,
    stalls: Sequence[Finding],
    unfinished: Sequence[str],
    figures: Mapping[str, float | None],
) -> Judgement:
    """The verdict, by what the scenario expects."""
    confirmed = [each for each in stalls if each.cause is Cause.DEADLOCK and not each.suspected and not each.over]
    refused = [event for event in rows.events if event.kind == "refused"]
    fell = {event.node for event in rows.events if event.kind == "not_finite" and event.node is not None}
    not_finite = list(_not_finite(rows))
    odd = [f"messages that were not finite came of node {e.details.get('src')}" for e in refused if _is_not_finite(e)]
    course = _course(scenario, rows, [*not_finite, *odd], figures["weight_sum"])
    findings = Findings(
        died=_deaths(rows),
        deadlocks=[f"deadlock: {each.text}" for each in confirmed],
        open_stalls=[f"stalled at the end: {s.text}" for s in stalls if not s.over and s not in confirmed],
        not_finite=not_finite,
        fell=fell,
        refused_not_finite=odd,
        num_refused=len(odd),
        num_delivered=course.messages.delivered,
        unfinished=unfinished,
        cautions=by_kind(find_cautions(course)),
        figures=figures,
    )
    expect = {name: bound for name, bound in scenario.expect.entries().items() if name != "duration_s"}
    return judge(findings, expect)


def _course(scenario: Scenario, rows: Rows, not_finite: Sequence[str], weight: float | None) -> Course:
    """What cautions go by."""
    series = _series(rows)
    timed_out, waits = _timeouts(rows)
    return Course(
        accuracy=_finite(series, "test_accuracy"),
        grown={name.replace("_", " "): _finite(series, name) for name in GROWING},
        not_finite=not_finite,
        timed_out=timed_out,
        waits=waits,
        messages=count(rows),
        weight=weight,
        least=_least_weight(rows),
        gave_up=lost_weight(rows) / scenario.nodes,
        plain=scenario.delivery.kind == "plain",
    )


def _least_weight(rows: Rows) -> HeldWeight | None:
    """The smallest push-sum weight that a node held; one that rejoined without any has 0 for a while."""
    held = (
        HeldWeight(value, round, node)
        for _, node, round, name, value in rows.measured
        if name == "weight" and node is not None and value > 0
    )
    return min(held, default=None)


def _is_not_finite(event: Noted) -> bool:
    return event.details.get("reason", "not_finite") == "not_finite"


def lost_weight(rows: Rows) -> float:
    """The push-sum weight that deliveries gave up and crashes lost for good."""
    came = {
        (m.src, m.dst, m.round, m.step) for m in rows.messages if m.kind is Kind.DATA and m.fate == Fate.DELIVERED.text
    }
    gave_up = sum(
        _number(e.details["weight"])
        for e in rows.events
        if e.kind == "given_up" and (e.node, e.details["dst"], e.round, e.details["step"]) not in came
    )
    return gave_up + sum(_lost_by_restarts(rows))


def _number(value: Scalar) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _lost_by_restarts(rows: Rows) -> Iterator[float]:
    held: dict[NodeId, float] = {}
    back: dict[NodeId, float] = {}
    for event in rows.events:
        if event.node is None:
            continue
        if event.kind == "crash":
            held[event.node] = _number(event.details.get("weight"))
        elif event.kind == "restart":
            back[event.node] = held.pop(event.node, 0.0)
        elif event.kind == "rejoin" and event.node in back:
            yield back.pop(event.node)


def _series(rows: Rows) -> dict[str, list[float]]:
    """Every figure of the fleet, in order of rounds."""
    found: dict[str, list[tuple[int, int, float]]] = {}
    for at_ns, node, round, name, value in rows.measured:
        if node is None:
            found.setdefault(name, []).append((round, at_ns, value))
    return {name: [value for *_, value in sorted(values, key=lambda v: v[:2])] for name, values in found.items()}


def _last(values: Sequence[float]) -> float | None:
    return values[-1] if values and isfinite(values[-1]) else None


def _finite(series: Mapping[str, Sequence[float]], name: str) -> list[float]:
    return [value for value in series.get(name, ()) if isfinite(value)]


def _last_losses(rows: Rows) -> list[float]:
    last: dict[NodeId | None, tuple[int, float]] = {}
    for _, node, round, name, value in rows.measured:
        if name == "train_loss" and isfinite(value) and (node not in last or round > last[node][0]):
            last[node] = (round, value)
    return [value for _, value in last.values()]


def _timeouts(rows: Rows) -> tuple[int, int]:
    return sum(wait.ended is Ended.DEADLINE and bool(wait.missing) for wait in rows.waits), len(rows.waits)


def _deaths(rows: Rows) -> dict[NodeId, str]:
    found: dict[NodeId, str] = {}
    for event in rows.events:
        if event.kind not in ("died", "training_error") or event.node is None:
            continue
        said = event.details.get("reason") or event.details.get("error")
        why = f"training error: {said}" if event.kind == "training_error" else str(said)
        found.setdefault(event.node, f"node {event.node} died in round {event.round}: {why}")
    return found


def _not_finite(rows: Rows) -> Iterator[str]:
    first: dict[NodeId | None, int] = {}
    for event in rows.events:
        if event.kind == "not_finite":
            first[event.node] = min(event.round, first.get(event.node, event.round))
    for _, node, round, name, value in rows.measured:
        if name in ("train_loss", "test_loss") and not isfinite(value):
            first[node] = min(round, first.get(node, round))
    for node, round in sorted(first.items(), key=lambda item: (item[1], item[0] is None, item[0] or 0)):
        who = "the average model" if node is None else f"node {node}"
        yield f"{who} had a loss that is not finite in round {round}"
    for event in rows.events:
        if event.kind == "mixed_not_finite":
            yield f"node {event.details.get('src')} sent NaN or infinity, mixed by node {event.node}"
