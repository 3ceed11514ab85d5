"""`result.json`: what a run came to, computed from its store and from what the supervisor knows."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple, Self

from netdfl.core.fates import MessageCounts
from netdfl.core.files import version_of
from netdfl.core.types import Json, NodeId
from netdfl.core.versions import Versions, deciding, grouped, mixed
from netdfl.record.cautions import Course, HeldWeight, by_kind, find_cautions
from netdfl.record.evaluated import Series, all_evaluations, course_of, digest_of, last_of, reach_of, values_of
from netdfl.record.judge import FIGURES, Findings, Judgement, is_measured, judge
from netdfl.record.messages import MessageTotals, count_messages, count_timeouts, shares
from netdfl.record.remarks import GivenUp, count_given_up, find_deaths, find_restarts, find_unreached
from netdfl.record.run import Run
from netdfl.record.time_spent import find_time_spent

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
    nodes that should have finished and have not; `software` is what each node runs on, where that may be something else
    than here; `event_log_hash` and `virtual_duration_s` are the simulated world's
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
    software: Mapping[NodeId, Versions] = field(default_factory=dict)


class Summary(NamedTuple):
    """What goes into `result.json`, and the judgement with the exit code."""

    result: dict[str, object]
    judgement: Judgement


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


class _Counted(NamedTuple):
    """What was counted of messages, of waits (those that timed out, and all), of what deliveries gave up."""

    messages: MessageTotals
    timeouts: tuple[int, int]
    given_up: GivenUp
    restarts: Sequence[Json]

    @classmethod
    def of(cls, run: Run) -> Self:
        """Count."""
        return cls(count_messages(run), count_timeouts(run), count_given_up(run), find_restarts(run))

    @property
    def lost_weight(self) -> float:
        """The push-sum weight that deliveries gave up and restarts lost."""
        return self.given_up.lost_weight + sum(each.get("lost_weight") or 0.0 for each in self.restarts)


def summarize(run: Run, facts: RunFacts) -> Summary:
    """Compute the contents of `result.json`, the verdict included, from what `run` recorded; many queries: hold it."""
    series, counted, deaths = all_evaluations(run), _Counted.of(run), find_deaths(run)
    refused, mixed = (_by_sender(run, kind) for kind in ("refused", "mixed_not_finite"))
    timed_out, waits = counted.timeouts
    timeouts = {"timeouts": timed_out / max(1, waits)}
    figures: Json = _figures(run, facts, series) | shares(counted.messages.counts) | timeouts
    found = _findings(run, facts, figures, deaths, refused, mixed)
    findings = replace(found, num_delivered=counted.messages.counts.delivered)
    cautions = find_cautions(_course(run, facts, series, counted, findings))
    length_s = facts.duration_s if facts.virtual_duration_s is None else facts.virtual_duration_s
    judgement = judge(replace(findings, cautions=by_kind(cautions)), facts.expect)
    result = {
        **_what_ran(facts),
        "verdict": judgement.verdict,
        "reasons": judgement.reasons,
        "warnings": [asdict(caution) for caution in cautions],
        **_measured(run, facts, series, figures),
        "messages": counted.messages.to_json(),
        "timeouts": figures["timeouts"],
        "given_up": counted.given_up._asdict(),
        "refused": [each._asdict() for each in refused],
        "mixed_not_finite": [each._asdict() for each in mixed],
        "bytes_sent": figures["bytes_sent"],
        "duration_s": facts.duration_s,
        "time": find_time_spent(run, length_s, facts.rounds),
        "died": deaths,
        "restarts": counted.restarts,
        "unfinished": list(facts.unfinished),
        "stalls": [dict(stall) for stall in facts.stalls],
        "deadlocks": [dict(deadlock) for deadlock in facts.deadlocks],
        "events_not_reached": find_unreached(run),
        "fidelity": facts.fidelity,
        "versions": dict(_versions()),
    }
    return Summary(result | _where_it_applies(facts) | _recorded(run), judgement)


def unjudged(facts: RunFacts, why: str, status: Mapping[str, Any]) -> Summary:
    """What goes into `result.json` of a run whose record could not be read: `why`, and what is known otherwise.

    `status` is the contents of `fleet.json`. What is not known is None, or empty.
    """
    told = ["; ".join(each for each in (facts.broke, why) if each)]
    broke = Findings(
        died={},
        deadlocks=[f"deadlock: {deadlock['text']}" for deadlock in facts.deadlocks],
        figures={},
        unfinished=facts.unfinished,
        broke=told[0],
    )
    judgement = judge(broke, {})
    counts = MessageCounts(**status.get("messages", {}))
    figures = ("test_loss", "error", "train_loss", "consensus_distance", "weight_sum", "timeouts", "time")
    result = {
        **_what_ran(facts),
        "verdict": judgement.verdict,
        "reasons": judgement.reasons,
        "warnings": [],
        "test_accuracy": {"average_model": digest_of([]), "mean_local": None, "mean_personal": None},
        "metrics": {},
        **dict.fromkeys(figures),
        "targets": [],
        "messages": MessageTotals(counts, {}).to_json(),
        "given_up": GivenUp(0, 0, 0.0)._asdict(),
        **{name: [] for name in ("refused", "mixed_not_finite", "died", "restarts", "events_not_reached")},
        "bytes_sent": status.get("bytes_sent", 0),
        "duration_s": facts.duration_s,
        "unfinished": list(facts.unfinished),
        "stalls": [dict(stall) for stall in facts.stalls],
        "deadlocks": [dict(deadlock) for deadlock in facts.deadlocks],
        "fidelity": facts.fidelity,
        "versions": dict(_versions()),
    }
    return Summary(result | _where_it_applies(facts), judgement)


def _course(run: Run, facts: RunFacts, series: Series, counted: _Counted, findings: Findings) -> Course:
    """What cautions go by."""
    timed_out, waits = counted.timeouts
    return Course(
        accuracy=values_of(series, "test_accuracy"),
        chance=_chance(run),
        grown={name.replace("_", " "): values_of(series, name) for name in GROWING},
        not_finite=[*findings.not_finite, *findings.refused_not_finite],
        timed_out=timed_out,
        waits=waits,
        messages=counted.messages.counts,
        weight=findings.figures["weight_sum"],
        least=_least_weight(run),
        gave_up=counted.lost_weight / facts.nodes,
        plain=facts.delivery == "plain",
        versions=list(mixed(facts.software, deciding)),
    )


def _measured(run: Run, facts: RunFacts, series: Series, figures: Json) -> dict[str, object]:
    """What the fleet came to, in figures."""
    return {
        "test_accuracy": {
            "average_model": digest_of(series.get("test_accuracy", [])),
            "mean_local": figures["mean_local"],
            "mean_personal": figures["mean_personal"],
        },
        "metrics": {name: course_of(found) for name, found in series.items() if is_measured(name)},
        **{name: figures[name] for name in ("test_loss", "error", "train_loss", "consensus_distance", "weight_sum")},
        "targets": [reach_of(run, series, target) for target in facts.targets],
    }


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


def _where_it_applies(facts: RunFacts) -> dict[str, object]:
    """What only runs that were resumed, are simulated, or whose nodes lived elsewhere, have."""
    found = {
        "resumed": [dict(each) for each in facts.resumed] or None,
        "virtual_duration_s": facts.virtual_duration_s,
        "event_log_hash": facts.event_log_hash,
        "node_versions": [each._asdict() for each in grouped(facts.software)] or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _recorded(run: Run) -> dict[str, object]:
    """What of the messages is recorded, where that is not all."""
    if run.sampling.is_all:
        return {}
    ((rows,),) = run.rows("SELECT count(*) FROM messages")
    return {"recorded": {"every": run.sampling.every, "messages": rows, "text": run.sampling.sentence}}


def _figures(run: Run, facts: RunFacts, series: Series) -> dict[str, object]:
    """The final numbers, by the names that `expect` knows."""
    train = (
        "SELECT avg(last) FROM "
        "(SELECT arg_max(value, round) AS last FROM metrics WHERE name = 'train_loss' GROUP BY node)"
    )
    return {
        "test_accuracy": last_of(series, "test_accuracy"),
        "mean_local": last_of(series, "mean_local_accuracy"),
        "mean_personal": last_of(series, "mean_personal_accuracy"),
        "test_loss": last_of(series, "test_loss"),
        "error": last_of(series, "error"),
        "train_loss": _scalar(run, train),
        "consensus_distance": last_of(series, "consensus_distance"),
        "weight_sum": last_of(series, "weight_sum"),
        "bytes_sent": _scalar(run, "SELECT coalesce(sum(nbytes), 0)::BIGINT FROM round_totals"),
        "duration_s": facts.duration_s,
        "virtual_duration_s": facts.virtual_duration_s,
    } | {name: last_of(series, name) for name in series if is_measured(name) and name not in FIGURES}


def _least_weight(run: Run) -> HeldWeight | None:
    """The smallest push-sum weight that a node held; one that rejoined without any has 0 for a while."""
    rows = run.rows(
        "SELECT value, round, node FROM metrics WHERE name = 'weight' AND node IS NOT NULL AND value > 0 "
        "ORDER BY value, round, node LIMIT 1"
    )
    return HeldWeight(*rows[0]) if rows else None


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
        num_refused=sum(each.messages for each in refused if each.reason == "not_finite"),
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
