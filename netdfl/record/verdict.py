"""The verdict on a run: its final figures, what they warn of, and whether it did what its scenario expects.

It goes by an `Observed`, which is read from the files of a run (`netdfl.record.result`) or from rows in memory
(`netdfl.explore.observed`). Both say the same of the same run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from netdfl.core.fates import FateReason, MessageCounts
from netdfl.core.types import NodeId
from netdfl.core.versions import Versions, deciding, mixed
from netdfl.record.cautions import Caution, Course, HeldWeight, by_kind, find_cautions
from netdfl.record.evaluated import Series, last_of, values_of
from netdfl.record.judge import FIGURES, Findings, Judgement, is_measured, judge
from netdfl.record.messages import shares

MASS_TOLERANCE = 1e-6
GROWING = ("consensus_distance", "test_loss", "error")
"""Figures that divergence shows in."""
NAMES = {"mean_local": "mean_local_accuracy", "mean_personal": "mean_personal_accuracy"}
"""Figures of `expect` that have another name among the metrics."""
LAST = ("test_accuracy", "mean_local", "mean_personal", "test_loss", "error", "consensus_distance", "weight_sum")
"""Figures of which the last evaluation counts."""


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


class Odd(NamedTuple):
    """Messages of one sender with the same thing wrong, and which nodes got them; `first_round` is -1 if unknown.

    No node: they came to the supervisor.
    """

    src: NodeId | None
    reason: FateReason
    messages: int
    first_round: int
    nodes: list[NodeId]

    def sentence(self, done: str) -> str:
        """In words: who sent, and what became of it."""
        num = f"{self.messages} message{'s' * (self.messages != 1)}"
        nodes = f"node{'s' * (len(self.nodes) != 1)} {', '.join(map(str, self.nodes))}"
        return f"node {self.src} sent NaN or infinity, first in round {self.first_round}: {num} {done} by {nodes}"


class Death(NamedTuple):
    """An unplanned end of a node."""

    node: NodeId
    round: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The record of a run, as far as its verdict goes by it.

    `series` are the fleet's figures; `train_loss` is the mean of the nodes' last ones, None: there is none. Deadlines
    ended `timed_out` of `waits` waits with somebody missing. `lost_weight` is the push-sum weight that deliveries gave
    up and restarts lost, `least` the smallest that a node held. `not_finite` names the nodes whose loss was not finite
    (None: the average model) with the first such round, in order of rounds; `fell` those that said so of themselves.
    `refused` and `mixed` are messages that were. `chance` is the accuracy of a guess, 0 where there are no classes.
    """

    series: Series
    messages: MessageCounts
    nbytes: int
    train_loss: float | None
    timed_out: int
    waits: int
    lost_weight: float
    least: HeldWeight | None
    deaths: Sequence[Death]
    not_finite: Sequence[tuple[NodeId | None, int]]
    fell: Collection[NodeId]
    refused: Sequence[Odd]
    mixed: Sequence[Odd]
    chance: float = 0.0


class Concluded(NamedTuple):
    """The final figures by the names that `expect` knows, what a reader has to know before them, and the verdict."""

    figures: dict[str, float | None]
    cautions: list[Caution]
    judgement: Judgement


def conclude(observed: Observed, facts: RunFacts) -> Concluded:
    """Judge a run by its record and by what the record does not hold."""
    figures = figures_of(observed, facts)
    not_finite = list(_not_finite(observed))
    refused = [each for each in observed.refused if each.reason == "not_finite"]
    sentences = [each.sentence("refused") for each in refused]
    cautions = find_cautions(_course(observed, facts, figures, [*not_finite, *sentences]))
    findings = Findings(
        died={node: f"node {node} died in round {round}: {why}" for node, round, why in observed.deaths},
        deadlocks=[f"deadlock: {each['text']}" for each in facts.deadlocks],
        open_stalls=[f"stalled at the end: {each['text']}" for each in facts.stalls if not each.get("over")],
        not_finite=not_finite,
        fell=observed.fell,
        refused_not_finite=sentences,
        num_refused=sum(each.messages for each in refused),
        num_delivered=observed.messages.delivered,
        unfinished=facts.unfinished,
        cautions=by_kind(cautions),
        figures=figures,
        fidelity_missed=facts.fidelity_missed,
        mass_error=_mass_error(facts.resumed, figures["weight_sum"]),
        broke=facts.broke,
        interrupted=facts.interrupted,
    )
    return Concluded(figures, cautions, judge(findings, facts.expect))


def figures_of(observed: Observed, facts: RunFacts) -> dict[str, float | None]:
    """Return the final figures, by the names that `expect` knows, and those that a task has of its own."""
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


def _course(
    observed: Observed, facts: RunFacts, figures: Mapping[str, float | None], not_finite: Sequence[str]
) -> Course:
    """What cautions go by."""
    return Course(
        accuracy=values_of(observed.series, "test_accuracy"),
        chance=observed.chance,
        grown={name.replace("_", " "): values_of(observed.series, name) for name in GROWING},
        not_finite=not_finite,
        timed_out=observed.timed_out,
        waits=observed.waits,
        messages=observed.messages,
        weight=figures["weight_sum"],
        least=observed.least,
        gave_up=observed.lost_weight / facts.nodes,
        plain=facts.delivery == "plain",
        versions=list(mixed(facts.software, deciding)),
    )


def _not_finite(observed: Observed) -> Iterator[str]:
    """One sentence per node (and one for the fleet) whose loss was not finite, and per sender of what was mixed."""
    for node, round in observed.not_finite:
        who = "the average model" if node is None else f"node {node}"
        yield f"{who} had a loss that is not finite in round {round}"
    for each in observed.mixed:
        yield each.sentence("mixed")


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
