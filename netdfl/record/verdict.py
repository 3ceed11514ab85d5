"""The verdict on a run: its final metrics, cautions, and whether it met its scenario's expectations.

It is based on `Observations`, read from the files of a run or from rows in memory. Both give the same verdict on the
same run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from netdfl.record.cautions import Caution, find_cautions
from netdfl.record.evaluated import last_of
from netdfl.record.judge import CAUTIONS, FIGURES, Evidence, Judgement, is_measured, judge
from netdfl.record.messages import shares
from netdfl.record.observations import Observations, RunFacts

MASS_TOLERANCE = 1e-6
MASS_ERROR = "mass error"
"""The beginning of the reason for which a resumed run's verdict is, and remains, unknown."""
NAMES = {"mean_local": "mean_local_accuracy", "mean_personal": "mean_personal_accuracy"}
"""Names under which the record holds metrics that have another name in `expect`."""
LAST = ("test_accuracy", "mean_local", "mean_personal", "test_loss", "error", "consensus_distance", "weight_sum")
"""Metrics whose value at the last evaluation counts for the verdict."""


class Conclusion(NamedTuple):
    """The conclusion about a run: its final metrics by their names in `expect`, its cautions, and its judgement."""

    figures: dict[str, float | None]
    cautions: list[Caution]
    judgement: Judgement


def conclude(observed: Observations, facts: RunFacts) -> Conclusion:
    """Judge a run by its observations, and by facts that its record does not contain."""
    figures = figures_of(observed, facts)
    not_finite = list(_not_finite(observed))
    refused = [each for each in observed.refused if each.reason == "not_finite"]
    sentences = [each.sentence("refused") for each in refused]
    cautions = find_cautions(observed, facts, [*not_finite, *sentences])
    findings = Evidence(
        died={node: f"node {node} died in round {round}: {why}" for node, round, why in observed.deaths},
        deadlocks=[f"deadlock: {each['text']}" for each in facts.deadlocks],
        open_stalls=[f"stalled at the end: {each['text']}" for each in facts.stalls if not each.get("over")],
        not_finite=not_finite,
        fell=observed.fell,
        refused_not_finite=sentences,
        num_refused=sum(each.messages for each in refused),
        num_delivered=observed.messages.delivered,
        unfinished=facts.unfinished,
        cautions={kind: [each.text for each in cautions if each.kind == kind] for kind in CAUTIONS},
        figures=figures,
        fidelity_missed=facts.fidelity_missed,
        mass_error=_mass_error(facts.resumed, figures["weight_sum"]),
        broke=facts.broke,
        interrupted=facts.interrupted,
    )
    return Conclusion(figures, cautions, judge(findings, facts.expect))


def figures_of(observed: Observations, facts: RunFacts) -> dict[str, float | None]:
    """Return a run's final metrics by their names in `expect`, and the metrics that a task defines."""
    series = observed.series
    return {
        **{name: last_of(series, NAMES.get(name, name)) for name in LAST},
        "train_loss": observed.train_loss,
        "bytes_sent": observed.nbytes,
        "duration_s": facts.duration_s,
        "virtual_duration_s": facts.virtual_duration_s,
        **{name: last_of(series, name) for name in series if is_measured(name) and name not in FIGURES},
        **shares(observed.messages),
        "timeouts": observed.timed_out / max(1, observed.waits),
    }


def _not_finite(observed: Observations) -> Iterator[str]:
    """Yield a sentence for each node whose loss was not finite, and for the average model if its loss was not.

    Also yield one for each sender of messages that were not finite and were mixed.
    """
    for node, round in observed.not_finite:
        who = "the average model" if node is None else f"node {node}"
        yield f"{who} had a loss that is not finite in round {round}"
    for each in observed.mixed:
        yield each.sentence("mixed")


def _mass_error(resumed: Sequence[Mapping[str, object]], weight_sum: float | None) -> str:
    """Return a sentence if a resumed run's sum of push-sum weights may differ from an unbroken run's; else empty."""
    doubts = [f"at {each['at_s']:.4g} s {each['doubt']}" for each in resumed if each["doubt"]]
    wrong = weight_sum is not None and abs(weight_sum - 1) > MASS_TOLERANCE
    if not doubts and not (resumed and wrong):
        return ""
    how = f"the run was resumed{' ' if doubts else ''}{', and '.join(doubts)}"
    if weight_sum is None:
        return f"{MASS_ERROR}: {how}: the mean of the models was not kept"
    return f"{MASS_ERROR}: {how}: the sum of w at the end is {weight_sum:.9g} of the number of nodes"
