"""The observations on which an explored run's verdict is based, read from rows in memory.

`netdfl.record.result` reads the same from the files of a run; a test compares the two.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import isfinite, nan
from statistics import fmean
from typing import Any

from netdfl.core.fates import Fate, FateClass, FateReason, MessageCounts
from netdfl.core.types import Json, Kind, NodeId, Scalar
from netdfl.diagnosis.finding import Finding, by_verdict
from netdfl.explore.rows import EventRow, MemoryStore
from netdfl.record.base import WaitEnd
from netdfl.record.evaluated import EvaluatedValue, Series
from netdfl.record.observations import HeldWeight, Observations, OddMessages, Outlier, RunFacts
from netdfl.record.remarks import Crash, Death, NodeEvent, count_given_up, lost_states, restarts_of
from netdfl.record.shares import KINDS, ShareRecord
from netdfl.scenario.model.schema import Scenario


def facts_of(scenario: Scenario, stalls: Sequence[Finding], unfinished: Sequence[str], length_ns: int) -> RunFacts:
    """Return the facts on a run that its verdict needs and its record lacks. The duration in real time is set to 0."""
    told = by_verdict(stalls)
    return RunFacts(
        scenario=scenario.name,
        seed=scenario.seed,
        world=scenario.world.kind,
        algorithm=scenario.algorithm.kind,
        nodes=scenario.nodes,
        rounds=scenario.rounds,
        duration_s=0.0,
        virtual_duration_s=length_ns / 1e9,
        expect={name: bound for name, bound in scenario.expect.entries().items() if name != "duration_s"},
        stalls=told["stalls"],
        deadlocks=told["deadlocks"],
        unfinished=unfinished,
        delivery=scenario.delivery.kind,
    )


def observe(rows: MemoryStore, chance: float = 0.0) -> Observations:
    """Return the observations on which a run's verdict is based, from the `rows` of its record.

    `chance` is the accuracy of guessing among the classes of the task's data; 0 for data without classes.
    """
    losses, events, shares = _last_losses(rows), _of_nodes(rows), _shares(rows)
    restarts = restarts_of(events, shares)
    return Observations(
        series=_series(rows),
        messages=_count(rows),
        nbytes=sum(message.nbytes for message in rows.messages),
        train_loss=sum(losses) / len(losses) if losses else None,
        timed_out=sum(wait.ended is WaitEnd.DEADLINE and bool(wait.missing) for wait in rows.waits),
        waits=len(rows.waits),
        lost_weight=_lost_weight(shares, restarts),
        new_weight=sum(each.get("new_weight") or 0.0 for each in restarts if each["state"] == "lost"),
        outliers=Outlier.first_of(events),
        least=_least_weight(rows),
        deaths=Death.first_of(events),
        crashes=Crash.last_of(events, _ended(rows)),
        not_finite=_not_finite(rows),
        fell={node for _, node, _, kind, _ in events if kind == "not_finite"},
        refused=_by_sender(rows, "refused"),
        mixed=_by_sender(rows, "mixed_not_finite"),
        chance=chance,
        lost_states=lost_states(restarts),
    )


def _count(rows: MemoryStore) -> MessageCounts:
    """Count the messages by their fate: delivered, dropped and so on."""
    found: Counter[FateClass] = Counter()
    for fate, number in Counter(message.fate for message in rows.messages).items():
        found[Fate.read(fate).counts_as] += number
    return MessageCounts(sent=len(rows.messages), **{name.value: number for name, number in found.items()})


def _series(rows: MemoryStore) -> Series:
    """Return every metric of the fleet, in the order of rounds, and means of `personal_` metrics over the nodes."""
    found: defaultdict[str, list[tuple[int, int, float]]] = defaultdict(list)
    of_nodes: defaultdict[tuple[str, int], list[tuple[int, float]]] = defaultdict(list)
    for at_ns, node, round, name, value in rows.measured:
        if node is None:
            found[name].append((round, at_ns, value))
        elif name.startswith("personal_"):
            of_nodes[f"mean_{name}", round].append((at_ns, value))
    means: defaultdict[str, list[tuple[int, int, float]]] = defaultdict(list)
    for (name, round), told in of_nodes.items():
        finite = [value for _, value in told if isfinite(value)]
        means[name].append((round, max(at_ns for at_ns, _ in told), fmean(finite) if finite else nan))
    return {
        name: [
            EvaluatedValue(round, at_ns / 1e9, value if isfinite(value) else None)
            for round, at_ns, value in sorted(values, key=lambda each: each[:2])
        ]
        for name, values in (means | found).items()
    }


def _last_losses(rows: MemoryStore) -> list[float]:
    last: dict[NodeId | None, tuple[int, float]] = {}
    for _, node, round, name, value in rows.measured:
        if name == "train_loss" and isfinite(value) and (node not in last or round > last[node][0]):
            last[node] = (round, value)
    return [value for _, value in last.values()]


def _least_weight(rows: MemoryStore) -> HeldWeight | None:
    """Return the smallest positive push-sum weight of any node.

    Zero is left out, because a node that rejoins without weight has 0 for a while.
    """
    held = (
        HeldWeight(value, round, node)
        for _, node, round, name, value in rows.measured
        if name == "weight" and node is not None and value > 0
    )
    return min(held, default=None)


def lost_weight(rows: MemoryStore) -> float:
    """Return the push-sum weight that was lost: in messages that were given up, or with states lost in crashes."""
    shares = _shares(rows)
    return _lost_weight(shares, restarts_of(_of_nodes(rows), shares))


def _lost_weight(shares: ShareRecord, restarts: Iterable[Json]) -> float:
    return count_given_up(shares).lost_weight + sum(each.get("lost_weight") or 0.0 for each in restarts)


def _shares(rows: MemoryStore) -> ShareRecord:
    """Return the shares of push-sum weight in messages that were given up or repeated, with times in nanoseconds."""
    found = ShareRecord()
    for event in rows.events:
        if event.kind in KINDS and event.node is not None:
            said = event.details
            of: Any = (said.get("dst", said.get("src")), event.round, said.get("step"))
            found.add(event.kind, event.at_ns, event.node, of, _number(said.get("weight")), str(said.get("state")))
    wanted = found.wanted
    for m in rows.messages if wanted else ():
        share = (m.src, m.dst, m.round, m.step)
        if share in wanted and m.kind is Kind.DATA and m.arrived_ns is not None and m.fate == Fate.DELIVERED.text:
            found.arrive(share, m.arrived_ns, m.sent_ns)
    return found


def _of_nodes(rows: MemoryStore) -> list[NodeEvent]:
    """Return the events of nodes, in order of time."""
    return [(at_ns, node, round, kind, said) for at_ns, node, round, kind, said in rows.events if node is not None]


def _ended(rows: MemoryStore) -> set[NodeId]:
    """Return the nodes that ended the last round that any node ended."""
    rounds = {(round, node) for _, node, round, name, _ in rows.measured if name == "round_s" and node is not None}
    last = max((round for round, _ in rounds), default=None)
    return {node for round, node in rounds if round == last}


def _number(value: Scalar) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _not_finite(rows: MemoryStore) -> list[tuple[NodeId | None, int]]:
    """Return each node whose loss was not finite, with the first such round; None stands for the whole fleet."""
    first: dict[NodeId | None, int] = {}
    for event in rows.events:
        if event.kind == "not_finite":
            first[event.node] = min(event.round, first.get(event.node, event.round))
    for _, node, round, name, value in rows.measured:
        if name in ("train_loss", "test_loss") and not isfinite(value):
            first[node] = min(round, first.get(node, round))
    return sorted(first.items(), key=lambda item: (item[1], item[0] is None, item[0] or 0))


def _by_sender(rows: MemoryStore, kind: str) -> list[OddMessages]:
    """Return the events of the given kind, which are about defective messages, grouped by sender and reason."""
    found: defaultdict[tuple[int | None, FateReason], list[EventRow]] = defaultdict(list)
    for event in rows.events:
        if event.kind == kind:
            src, reason = event.details.get("src"), event.details.get("reason", "not_finite")
            found[src if isinstance(src, int) else None, FateReason(str(reason))].append(event)
    odd = [
        OddMessages(
            src,
            reason,
            sum(int(_number(event.details.get("messages", 1))) for event in events),
            min(event.round for event in events),
            sorted({event.node for event in events if event.node is not None}),
            str(
                min(events, key=lambda event: (event.at_ns, event.node is None, event.node or 0)).details.get(
                    "what", ""
                )
            ),
        )
        for (src, reason), events in found.items()
    ]
    return sorted(odd, key=lambda each: (each.src is None, each.src or 0, each.reason))
