"""`result.json`: what a run came to, computed from its store and from what the supervisor knows."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

from netdfl.core.installed import version_of
from netdfl.core.types import Json, NodeId
from netdfl.record.cautions import Caution, Course, find_cautions
from netdfl.record.forms import read_details
from netdfl.record.given_up import count_given_up
from netdfl.record.judge import FIGURES, Findings, Judgement, is_measured, judge
from netdfl.record.messages import count_messages, count_timeouts, shares
from netdfl.record.restarts import find_restarts
from netdfl.record.run import Run
from netdfl.record.time_spent import find_time_spent
from netdfl.record.unreached import find_unreached

SCHEMA = "netdfl/result/1"
MASS_TOLERANCE = 1e-6
GROWING = ("consensus_distance", "test_loss", "error")
"""Figures that divergence shows in."""
PACKAGES = ("netdfl", "torch", "numpy", "grpcio")


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What the store does not hold. Stalls are mappings with `text` and, once they ended, `over: true`.

    `targets` are those of `report.targets`, an accuracy or a mapping with `metric` and `at_least` or `at_most`;
    `delivery` is the kind of the scenario's; `broke` and `fidelity_missed` say in a sentence what went wrong outside
    the scenario; `links` names the layer on which links act, and what carried them out, `link_rules` what each rule
    comes to; `resumed` has an entry for each time that real nodes were resumed; `unfinished` are sentences about
    nodes that should have finished and have not; `event_log_hash` and `virtual_duration_s` are the simulated world's
    alone.
    """

    scenario: str
    seed: int
    world: str
    algorithm: str
    nodes: int
    rounds: int
    duration_s: float
    virtual_duration_s: float | None = None
    expect: Mapping[str, object] = field(default_factory=dict)
    targets: Sequence[float | Mapping[str, Any]] = ()
    tags: Sequence[str] = ()
    stalls: Sequence[Mapping[str, object]] = ()
    deadlocks: Sequence[Mapping[str, object]] = ()
    event_log_hash: str | None = None
    fidelity: Mapping[str, object] | None = None
    fidelity_missed: str = ""
    links: Mapping[str, object] = field(default_factory=lambda: {"layer": "message"})
    link_rules: Sequence[Mapping[str, object]] = ()
    resumed: Sequence[Mapping[str, object]] = ()
    unfinished: Sequence[str] = ()
    broke: str = ""
    interrupted: bool = False
    delivery: str = "plain"


class Summary(NamedTuple):
    """What goes into `result.json`, and the judgement with the exit code."""

    result: dict[str, object]
    judgement: Judgement


class EvaluatedValue(NamedTuple):
    """One evaluation of a fleet metric; `value` is None where it was not finite."""

    round: int
    at_s: float
    value: float | None


class Odd(NamedTuple):
    """Messages of one sender with the same thing wrong, and which nodes got them; `first_round` is -1 if unknown.

    No node: they came to the supervisor.
    """

    src: NodeId | None
    reason: str
    messages: int
    first_round: int
    nodes: list[NodeId]

    def sentence(self, done: str) -> str:
        """In words: who sent, and what became of it."""
        num = f"{self.messages} message{'s' * (self.messages != 1)}"
        nodes = f"node{'s' * (len(self.nodes) != 1)} {', '.join(map(str, self.nodes))}"
        return f"node {self.src} sent NaN or infinity, first in round {self.first_round}: {num} {done} by {nodes}"


def _by_sender(run: Run, kind: str) -> list[Odd]:
    rows = run.rows(
        "SELECT TRY_CAST(details->>'src' AS INTEGER) AS src, coalesce(details->>'reason', 'not_finite') AS reason, "
        "sum(coalesce(TRY_CAST(details->>'messages' AS INTEGER), 1))::BIGINT, min(round), "
        "coalesce(list_sort(list(DISTINCT node) FILTER (node IS NOT NULL)), []) FROM events WHERE kind = ? "
        "GROUP BY 1, 2 ORDER BY 1 NULLS LAST, 2",
        [kind],
    )
    return [Odd(*row) for row in rows]


def summarize(run: Run, facts: RunFacts) -> Summary:
    """Compute the contents of `result.json`, the verdict included, from what `run` recorded."""
    with run.held():
        return _summarize(run, facts)


def _summarize(run: Run, facts: RunFacts) -> Summary:
    series = all_evaluations(run)
    accuracy = series.get("test_accuracy", [])
    messages, timeouts, given_up = count_messages(run), count_timeouts(run), count_given_up(run)
    refused, mixed = (_by_sender(run, kind) for kind in ("refused", "mixed_not_finite"))
    figures: Json = (
        _figures(run, facts, series) | shares(messages.counts) | {"timeouts": timeouts[0] / max(1, timeouts[1])}
    )
    deaths = find_deaths(run)
    restarts: Sequence[Json] = find_restarts(run)
    findings = _findings(run, facts, figures, deaths, refused, mixed)
    lost_weight = given_up.lost_weight + sum(each.get("lost_weight") or 0.0 for each in restarts)
    cautions = find_cautions(
        Course(
            accuracy=_values(series, "test_accuracy"),
            chance=_chance(run),
            grown={name.replace("_", " "): _values(series, name) for name in GROWING},
            not_finite=[*findings.not_finite, *findings.refused_not_finite],
            timed_out=timeouts[0],
            waits=timeouts[1],
            messages=messages.counts,
            weight=figures["weight_sum"],
            gave_up=lost_weight / facts.nodes,
            plain=facts.delivery == "plain",
        )
    )
    judgement = judge(replace(findings, cautions=_by_kind(cautions)), facts.expect)
    result = {
        **_what_ran(facts),
        "verdict": judgement.verdict,
        "reasons": judgement.reasons,
        "warnings": [asdict(caution) for caution in cautions],
        "test_accuracy": {
            "average_model": _digest(accuracy),
            "mean_local": figures["mean_local"],
            "mean_personal": figures["mean_personal"],
        },
        "metrics": {name: _course(found) for name, found in series.items() if is_measured(name)},
        "test_loss": figures["test_loss"],
        "error": figures["error"],
        "train_loss": figures["train_loss"],
        "consensus_distance": figures["consensus_distance"],
        "weight_sum": figures["weight_sum"],
        "targets": [_reach(run, series, target) for target in facts.targets],
        "messages": messages.to_json(),
        "timeouts": figures["timeouts"],
        "given_up": given_up._asdict(),
        "refused": [each._asdict() for each in refused],
        "mixed_not_finite": [each._asdict() for each in mixed],
        "bytes_sent": figures["bytes_sent"],
        "duration_s": facts.duration_s,
        "time": find_time_spent(run, _length_s(facts), facts.rounds),
        "died": deaths,
        "restarts": restarts,
        "unfinished": list(facts.unfinished),
        "stalls": [dict(stall) for stall in facts.stalls],
        "deadlocks": [dict(deadlock) for deadlock in facts.deadlocks],
        "events_not_reached": find_unreached(run),
        "fidelity": facts.fidelity,
        "versions": dict(_versions()),
    }
    return Summary(result | _where_it_applies(facts) | _recorded(run), judgement)


def _what_ran(facts: RunFacts) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "scenario": facts.scenario,
        "seed": facts.seed,
        "world": facts.world,
        "links": dict(facts.links),
        "link_rules": [dict(rule) for rule in facts.link_rules],
        "algorithm": facts.algorithm,
        "nodes": facts.nodes,
        "rounds": facts.rounds,
        "tags": list(facts.tags),
    }


def _length_s(facts: RunFacts) -> float:
    """How long the run took by the nodes' clock."""
    return facts.duration_s if facts.virtual_duration_s is None else facts.virtual_duration_s


def _where_it_applies(facts: RunFacts) -> dict[str, object]:
    """What only runs that were resumed, or are simulated, have."""
    found = {
        "resumed": [dict(each) for each in facts.resumed] or None,
        "virtual_duration_s": facts.virtual_duration_s,
        "event_log_hash": facts.event_log_hash,
    }
    return {key: value for key, value in found.items() if value is not None}


def _recorded(run: Run) -> dict[str, object]:
    """What of the messages is recorded, where that is not all."""
    if run.sampling.is_all:
        return {}
    ((rows,),) = run.rows("SELECT count(*) FROM messages")
    return {"recorded": {"every": run.sampling.every, "messages": rows, "text": run.sampling.sentence}}


def evaluations(run: Run, name: str) -> list[EvaluatedValue]:
    """Every evaluation of the fleet metric `name` (`test_accuracy`, say), in order of rounds."""
    rows = run.rows(
        "SELECT round, at_s, value FROM metrics WHERE node IS NULL AND name = ? ORDER BY round, at_s", [name]
    )
    return [EvaluatedValue(*row) for row in rows]


def all_evaluations(run: Run) -> dict[str, list[EvaluatedValue]]:
    """Every evaluation of every fleet metric, by its name, in order of rounds."""
    found: dict[str, list[EvaluatedValue]] = {}
    for name, *row in run.rows("SELECT name, round, at_s, value FROM metrics WHERE node IS NULL ORDER BY round, at_s"):
        found.setdefault(name, []).append(EvaluatedValue(*row))
    return found


def find_deaths(run: Run) -> list[Json]:
    """Nodes that died unplanned, in order of time: node, round, reason, and who waited for it in which round.

    What was before the last resumption counts no more.
    """
    first = run.rows(
        "SELECT node, arg_min(round, at_s), arg_min(kind, at_s), arg_min(details, at_s) FROM events "
        "WHERE kind IN ('died', 'training_error') AND node IS NOT NULL "
        "AND at_s > coalesce((SELECT max(at_s) FROM events WHERE kind = 'resume'), -1) "
        "GROUP BY node ORDER BY min(at_s), node"
    )
    waits = run.rows(
        "SELECT unnest(from_json(details->'awaited', '[\"INTEGER\"]')) AS awaited, node, round "
        "FROM events WHERE kind = 'missing' ORDER BY round, node"
    )
    deaths: list[Json] = []
    for node, round, kind, details in first:
        waited: dict[NodeId, int] = {}
        for awaited, waiter, since in waits:
            if awaited == node and since >= round:
                waited.setdefault(waiter, since)
        by = [{"node": waiter, "round": since} for waiter, since in waited.items()]
        deaths.append(
            {"node": node, "round": round, "reason": _reason(kind, read_details(details)), "waited_for_by": by}
        )
    return deaths


def _reason(kind: str, details: Mapping[str, object]) -> str:
    """`killed by SIGKILL`, `exit code 3`, `training error: out of memory`, from an event's details."""
    said = details.get("reason") or details.get("error")
    if kind == "training_error":
        return f"training error: {said}" if said else "training error"
    if details.get("signal"):
        return f"killed by {details['signal']}" + (f" ({said})" if said else "")
    if said:
        return str(said)
    code = details.get("exit_code")
    return "ended early" if code is None else f"exit code {code}"


def _digest(accuracy: Sequence[EvaluatedValue]) -> dict[str, float | None]:
    """The last value, the best, and the mean of the last five."""
    values = [evaluation.value for evaluation in accuracy if evaluation.value is not None]
    if not values:
        return {"last": None, "best": None, "mean_last_5": None}
    tail = values[-5:]
    return {"last": values[-1], "best": max(values), "mean_last_5": math.fsum(tail) / len(tail)}


def _course(found: Sequence[EvaluatedValue]) -> dict[str, float | None]:
    """The last value of a figure, its least and most, and the mean of the last five."""
    digest = _digest(found)
    least = min((each.value for each in found if each.value is not None), default=None)
    return {"last": digest["last"], "least": least, "most": digest["best"], "mean_last_5": digest["mean_last_5"]}


def _reach(
    run: Run, series: Mapping[str, Sequence[EvaluatedValue]], target: float | Mapping[str, Any]
) -> dict[str, object]:
    """Rounds, bytes and seconds until the fleet first had the accuracy, or the figure, that `target` asks for."""
    if isinstance(target, Mapping):
        name, least, most = target["metric"], target.get("at_least"), target.get("at_most")
        asked = {"metric": name, **({"at_most": most} if least is None else {"at_least": least})}
    else:
        name, least, most, asked = "test_accuracy", target, None, {"accuracy": target}
    for found in series.get(name, ()):
        if (
            found.value is not None
            and (least is None or found.value >= least)
            and (most is None or found.value <= most)
        ):
            until = "SELECT coalesce(sum(nbytes), 0)::BIGINT FROM round_totals WHERE round <= ?"
            ((sent,),) = run.rows(until, [found.round])
            return {**asked, "round": found.round, "bytes": sent, "seconds": found.at_s}
    return {**asked, "round": None, "bytes": None, "seconds": None}


def _figures(run: Run, facts: RunFacts, series: Mapping[str, Sequence[EvaluatedValue]]) -> dict[str, object]:
    """The final numbers, by the names that `expect` knows."""
    train = (
        "SELECT avg(last) FROM "
        "(SELECT arg_max(value, round) AS last FROM metrics WHERE name = 'train_loss' GROUP BY node)"
    )
    return {
        "test_accuracy": _last(series, "test_accuracy"),
        "mean_local": _last(series, "mean_local_accuracy"),
        "mean_personal": _last(series, "mean_personal_accuracy"),
        "test_loss": _last(series, "test_loss"),
        "error": _last(series, "error"),
        "train_loss": _scalar(run, train),
        "consensus_distance": _last(series, "consensus_distance"),
        "weight_sum": _last(series, "weight_sum"),
        "bytes_sent": _scalar(run, "SELECT coalesce(sum(nbytes), 0)::BIGINT FROM round_totals"),
        "duration_s": facts.duration_s,
        "virtual_duration_s": facts.virtual_duration_s,
    } | {name: _last(series, name) for name in series if is_measured(name) and name not in FIGURES}


def _last(series: Mapping[str, Sequence[EvaluatedValue]], name: str) -> float | None:
    found = series.get(name)
    return found[-1].value if found else None


def _scalar(run: Run, sql: str) -> object:
    return run.rows(sql)[0][0]


def _findings(
    run: Run, facts: RunFacts, figures: Json, deaths: Sequence[Json], refused: Sequence[Odd], mixed: Sequence[Odd]
) -> Findings:
    return Findings(
        died={
            death["node"]: f"node {death['node']} died in round {death['round']}: {death['reason']}" for death in deaths
        },
        deadlocks=[f"deadlock: {deadlock['text']}" for deadlock in facts.deadlocks],
        open_stalls=[f"stalled at the end: {stall['text']}" for stall in facts.stalls if not stall.get("over")],
        not_finite=[*_not_finite(run), *(each.sentence("mixed") for each in mixed)],
        fell={row[0] for row in run.rows("SELECT DISTINCT node FROM events WHERE kind = 'not_finite'")},
        refused_not_finite=[each.sentence("refused") for each in refused if each.reason == "not_finite"],
        unfinished=facts.unfinished,
        figures=figures,
        fidelity_missed=facts.fidelity_missed,
        mass_error=_mass_error(facts.resumed, figures["weight_sum"]),
        broke=facts.broke,
        interrupted=facts.interrupted,
    )


def _chance(run: Run) -> float:
    """The accuracy of a guess; 0 where there are no classes."""
    partition = run.partition
    return 1 / len(partition["classes"]) if partition is not None and partition["classes"] else 0.0


def _values(series: Mapping[str, Sequence[EvaluatedValue]], name: str) -> list[float]:
    return [each.value for each in series.get(name, ()) if each.value is not None]


def _by_kind(cautions: Sequence[Caution]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for caution in cautions:
        found.setdefault(caution.kind.value, []).append(caution.text)
    return found


def _mass_error(resumed: Sequence[Mapping[str, object]], weight_sum: float | None) -> str:
    """What a resumed run lacks of the one that was never killed, or has too much; empty where it lacks nothing."""
    doubts = [f"at {each['at_s']:.4g} s {each['doubt']}" for each in resumed if each["doubt"]]
    wrong = weight_sum is not None and abs(weight_sum - 1) > MASS_TOLERANCE
    if not doubts and not (resumed and wrong):
        return ""
    how = f"the run was resumed{' ' if doubts else ''}{', and '.join(doubts)}"
    if weight_sum is None:
        return f"mass error: {how}: the mean of the models was not kept"
    return f"mass error: {how}: the sum of w at the end is {weight_sum:.9g} of the number of nodes"


def _not_finite(run: Run) -> list[str]:
    """One sentence per node (and one for the fleet) whose loss was not finite, with the first such round."""
    rows = run.rows(
        "SELECT node, min(round) FROM (SELECT node, round FROM events WHERE kind = 'not_finite' UNION ALL "
        "SELECT node, round FROM metrics WHERE name IN ('train_loss', 'test_loss') AND value IS NULL) "
        "GROUP BY node ORDER BY 2, 1 NULLS LAST"
    )
    return [
        f"{'the average model' if n is None else f'node {n}'} had a loss that is not finite in round {r}"
        for n, r in rows
    ]


@cache
def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version()}
    return versions | {package: version_of(package) for package in PACKAGES}
