"""`result.json`: the outcome of a run, computed from its store and from facts that the supervisor knows."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, NamedTuple, Self

from netdfl.core.fates import FateReason, MessageCounts
from netdfl.core.files import version_of
from netdfl.core.types import Json
from netdfl.core.versions import grouped
from netdfl.record.evaluated import Series, all_evaluations, chance_of, course_of, digest_of, reach_of
from netdfl.record.forms import read_list
from netdfl.record.judge import Evidence, Judgement, is_measured, judge
from netdfl.record.messages import MessageTotals, count_messages, count_timeouts
from netdfl.record.observations import Equivocation, HeldWeight, Observations, OddMessages, Outlier, RunFacts
from netdfl.record.remarks import (
    RETURNS,
    Death,
    GivenUpCounts,
    count_given_up,
    events_of_nodes,
    find_crashes,
    find_deaths,
    find_unreached,
    lost_states,
    read_shares,
    restarts_of,
)
from netdfl.record.run import Run
from netdfl.record.time_spent import find_time_spent
from netdfl.record.verdict import conclude

SCHEMA = "netdfl/result/1"
PACKAGES = ("netdfl", "torch", "numpy", "grpcio")


class Summary(NamedTuple):
    """The contents of `result.json`, and the judgement with its exit code."""

    result: dict[str, object]
    judgement: Judgement


def _by_sender(run: Run, kind: str) -> list[OddMessages]:
    rows = run.rows(
        "SELECT TRY_CAST(details->>'src' AS INTEGER) AS src, coalesce(details->>'reason', 'not_finite') AS reason, "
        "sum(coalesce(TRY_CAST(details->>'messages' AS INTEGER), 1))::BIGINT, min(round), "
        "coalesce(list_sort(list(DISTINCT node) FILTER (node IS NOT NULL)), []), "
        "coalesce(first(details->>'what' ORDER BY at_s, node), '') FROM events WHERE kind = ? "
        "GROUP BY 1, 2 ORDER BY 1 NULLS LAST, 2",
        [kind],
    )
    return [OddMessages(src, FateReason(reason), *rest) for src, reason, *rest in rows]


class StoredRecord(NamedTuple):
    """The stored record of a run: the observations for its verdict, and further entries of `result.json`."""

    observed: Observations
    messages: MessageTotals
    given_up: GivenUpCounts
    restarts: Sequence[Json]
    deaths: Sequence[Json]

    @classmethod
    def of(cls, run: Run) -> Self:
        """Read from the store of `run` all that its verdict and its `result.json` need."""
        messages, shares, deaths = count_messages(run), read_shares(run), find_deaths(run)
        given_up, restarts = count_given_up(shares), restarts_of(events_of_nodes(run, RETURNS), shares)
        timed_out, waits = count_timeouts(run)
        observed = Observations(
            series=all_evaluations(run),
            messages=messages.counts,
            nbytes=messages.nbytes,
            train_loss=run.rows(_TRAIN_LOSS)[0][0],
            timed_out=timed_out,
            waits=waits,
            lost_weight=given_up.lost_weight + sum(each.get("lost_weight") or 0.0 for each in restarts),
            new_weight=sum(each.get("new_weight") or 0.0 for each in restarts if each["state"] == "lost"),
            outliers=Outlier.first_of(events_of_nodes(run, ["outlier"])),
            least=_least_weight(run),
            deaths=[Death(each["node"], each["round"], each["reason"]) for each in deaths],
            crashes=find_crashes(run),
            not_finite=[(node, round) for node, round in run.rows(_NOT_FINITE)],
            fell={
                row[0]
                for row in run.rows("SELECT DISTINCT node FROM events WHERE kind = 'not_finite' AND node IS NOT NULL")
            },
            refused=_by_sender(run, "refused"),
            mixed=_by_sender(run, "mixed_not_finite"),
            chance=chance_of(run.partition),
            equivocal=tuple(_equivocal(run)),
            lost_states=lost_states(restarts),
        )
        return cls(observed, messages, given_up, restarts, deaths)


_TRAIN_LOSS = (
    "SELECT avg(last) FROM (SELECT arg_max(value, round) AS last FROM metrics WHERE name = 'train_loss' GROUP BY node)"
)
_NOT_FINITE = (
    "SELECT node, min(round) FROM (SELECT node, round FROM events WHERE kind = 'not_finite' UNION ALL "
    "SELECT node, round FROM metrics WHERE name IN ('train_loss', 'test_loss') AND value IS NULL) "
    "GROUP BY node ORDER BY 2, 1 NULLS LAST"
)


def _equivocal(run: Run) -> list[Equivocation]:
    """Return, for each sender, the first round in which it sent its neighbors different messages without restarting."""
    found: dict[tuple[int, int, int], dict[str, set[int]]] = {}
    for node, text in run.rows("SELECT node, details->>'digests' FROM events WHERE kind = 'came' AND node IS NOT NULL"):
        for row in read_list(text):
            match row:
                case [int() as round, int() as src, int() as epoch, str() as digest]:
                    found.setdefault((src, round, epoch), {}).setdefault(digest, set()).add(node)
    first: dict[int, Equivocation] = {}
    for (src, round, _), came in sorted(found.items()):
        if len(came) > 1 and src not in first:
            first[src] = Equivocation(src, round, sorted(sorted(nodes) for nodes in came.values()))
    return list(first.values())


def summarize(run: Run, facts: RunFacts) -> Summary:
    """Compute the contents of `result.json`, including the verdict, from the record of `run`.

    This makes many queries: load the run's tables first, by `Run.held`.
    """
    observed, messages, given_up, restarts, deaths = StoredRecord.of(run)
    figures, cautions, judgement = conclude(observed, facts)
    length_s = facts.duration_s if facts.virtual_duration_s is None else facts.virtual_duration_s
    result = {
        **_what_ran(facts),
        "verdict": judgement.verdict,
        "reasons": judgement.reasons,
        **({"met": list(judgement.met)} if judgement.met else {}),
        "warnings": [asdict(caution) for caution in cautions],
        **_measured(run, facts, observed.series, figures),
        "messages": messages.to_json(),
        "timeouts": figures["timeouts"],
        "given_up": given_up._asdict(),
        "refused": [each.to_json("refused") for each in observed.refused],
        "mixed_not_finite": [each.to_json("mixed") for each in observed.mixed],
        "bytes_sent": figures["bytes_sent"],
        "duration_s": facts.duration_s,
        "time": find_time_spent(run, length_s, facts.shared_rates, (*facts.stalls, *facts.deadlocks)),
        "died": deaths,
        "crashed": [each._asdict() for each in observed.crashes],
        "restarts": restarts,
        "unfinished": list(facts.unfinished),
        "stalls": [dict(stall) for stall in facts.stalls],
        "deadlocks": [dict(deadlock) for deadlock in facts.deadlocks],
        "events_not_reached": find_unreached(run),
        "fidelity": facts.fidelity,
        "versions": dict(_versions()),
    }
    return Summary(result | _where_it_applies(facts) | _recorded(run), judgement)


def unjudged(facts: RunFacts, why: str, status: Mapping[str, Any]) -> Summary:
    """Return the contents of `result.json` for a run whose record could not be read, for the reason `why`.

    `status` is the contents of `fleet.json`. Unknown entries are None, or empty.
    """
    known = Evidence(
        deadlocks=[f"deadlock: {deadlock['text']}" for deadlock in facts.deadlocks],
        unfinished=facts.unfinished,
        broke="; ".join(each for each in (facts.broke, why) if each),
    )
    judgement = judge(known, {})
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
        "given_up": GivenUpCounts(0, 0, 0.0)._asdict(),
        **{name: [] for name in ("refused", "mixed_not_finite", "died", "crashed", "restarts", "events_not_reached")},
        "bytes_sent": status.get("bytes_sent", 0),
        "duration_s": facts.duration_s,
        "unfinished": list(facts.unfinished),
        "stalls": [dict(stall) for stall in facts.stalls],
        "deadlocks": [dict(deadlock) for deadlock in facts.deadlocks],
        "fidelity": facts.fidelity,
        "versions": dict(_versions()),
    }
    return Summary(result | _where_it_applies(facts), judgement)


def _measured(run: Run, facts: RunFacts, series: Series, figures: Json) -> dict[str, object]:
    """Return the entries of `result.json` with the fleet's final metrics."""
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
    """Return the entries of `result.json` that exist only for runs resumed, simulated, or on several machines."""
    found = {
        "resumed": [dict(each) for each in facts.resumed] or None,
        "virtual_duration_s": facts.virtual_duration_s,
        "event_log_hash": facts.event_log_hash,
        "node_versions": [each._asdict() for each in grouped(facts.software)] or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _recorded(run: Run) -> dict[str, object]:
    """Return an entry that says which messages were recorded, if not all were."""
    if run.sampling.is_all:
        return {}
    ((rows,),) = run.rows("SELECT count(*) FROM messages")
    return {"recorded": {"every": run.sampling.every, "messages": rows, "text": run.sampling.sentence}}


def _least_weight(run: Run) -> HeldWeight | None:
    """Return the smallest positive push-sum weight of any node.

    Zero is left out, because a node that rejoins without weight after a crash has 0 for a while.
    """
    rows = run.rows(
        "SELECT value, round, node FROM metrics WHERE name = 'weight' AND node IS NOT NULL AND value > 0 "
        "ORDER BY value, round, node LIMIT 1"
    )
    return HeldWeight(*rows[0]) if rows else None


@cache
def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version()}
    return versions | {package: version_of(package) for package in PACKAGES}
