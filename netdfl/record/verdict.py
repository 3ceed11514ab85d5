"""The verdict on a run: its final metrics, cautions, and whether it met its scenario's expectations.

It is based on `Observations`, read from the files of a run (`netdfl.record.result`) or from rows in memory
(`netdfl.explore.observed`). Both give the same verdict on the same run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from netdfl.core.fates import FateReason, MessageCounts
from netdfl.core.types import Json, NodeId
from netdfl.core.versions import Versions, deciding, mixed
from netdfl.record.bottleneck import SharedRates
from netdfl.record.cautions import Caution, HeldWeight, RunFigures, by_kind, find_cautions
from netdfl.record.evaluated import Series, last_of, values_of
from netdfl.record.judge import FIGURES, Evidence, Judgement, is_measured, judge
from netdfl.record.messages import shares
from netdfl.record.remarks import Crash

MASS_TOLERANCE = 1e-6
MOST_NAMED = 8
MOST_LETTERS = 500
ABSURD = 1e12
NO_WEIGHT = 1e307
_PLACE = re.compile(r"^message \d+->\d+ of round -?\d+: ")
"""Pattern of the beginning of a refusal's text, before the part that says what was wrong with the message."""
_ODD = re.compile(r"expected (?P<expected>.*), got (?P<got>.*)")
GROWING = ("consensus_distance", "test_loss", "error")
"""Metrics whose growth shows that training diverges."""
NAMES = {"mean_local": "mean_local_accuracy", "mean_personal": "mean_personal_accuracy"}
"""Names under which the record holds metrics that have another name in `expect`."""
LAST = ("test_accuracy", "mean_local", "mean_personal", "test_loss", "error", "consensus_distance", "weight_sum")
"""Metrics of which the value at the last evaluation counts for the verdict."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Facts about a run that the store does not hold.

    Attributes:
        scenario: the scenario's name.
        seed: its seed.
        world: the kind of environment in which it ran, such as simulated.
        algorithm: the algorithm's name.
        nodes: the number of nodes, without a server.
        rounds: the number of rounds.
        duration_s: the real time that the run took.
        virtual_duration_s: the virtual time that passed; None in real time.
        expect: the entries of the scenario's `expect`.
        targets: the entries of `report.targets`: an accuracy, or a mapping with `metric` and `at_least` or `at_most`.
        tags: the scenario's tags.
        stalls: mappings with `text` and, once the stall ended, `over: true`.
        deadlocks: the same for deadlocks.
        event_log_hash: the hash of the event log, in the simulated world.
        fidelity: how well emulated links kept their scheduled delays, if that was measured.
        fidelity_missed: a sentence, if the links were not as the scenario asks.
        links: the layer on which links act, and the device that applies them.
        link_rules: the effect of each rule of links.
        resumed: an entry for each resumption of real nodes.
        unfinished: sentences about nodes that should have finished and did not.
        broke: a sentence about an error that ended the run.
        interrupted: whether a user interrupted the run.
        delivery: the kind of the scenario's delivery.
        software: the versions of each node, where they may differ from this process's.
        shared_rates: returns the shared links of an underlay that an edge crosses.
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
    shared_rates: SharedRates | None = None


class OddMessages(NamedTuple):
    """Messages of one sender with the same defect, such as NaN among their numbers.

    Attributes:
        src: the sender; None: processes that are not part of the fleet.
        reason: the kind of defect.
        messages: their number.
        first_round: the first round in which one came; -1: unknown.
        nodes: the nodes that received them; empty: the supervisor received them.
        what: in words, the defect of the first of them.
    """

    src: NodeId | None
    reason: FateReason
    messages: int
    first_round: int
    nodes: list[NodeId]
    what: str = ""

    def sentence(self, done: str) -> str:
        """Return a sentence that names the sender and what it sent; `done` is `refused` or `mixed`."""
        if self.src is None:
            calls = f"{self.messages:,} call{'s' * (self.messages != 1)}"
            return f"{calls} of strangers {done} by {self._receivers}, first: {self._said or self.reason}"
        num = f"{self.messages:,} message{'s' * (self.messages != 1)}"
        when = f", first in round {self.first_round}" * (self.first_round >= 0)
        return f"node {self.src} sent {self._contents}{when}: {num} {done} by {self._receivers}"

    @property
    def _receivers(self) -> str:
        if not self.nodes:
            return "the supervisor"
        return f"node{'s' * (len(self.nodes) != 1)} {_some(self.nodes)}"

    @property
    def _said(self) -> str:
        """The description `what` of the defect, shortened, without control characters, which a terminal would obey."""
        return "".join(letter if letter.isprintable() else "?" for letter in self.what[:MOST_LETTERS])

    @property
    def _contents(self) -> str:
        """A phrase that describes the contents of the first message."""
        what = _PLACE.sub("", self._said)
        if found := _ODD.fullmatch(what):
            return f"{found['got']} in place of {found['expected']}"
        if self.reason == "not_finite":
            return what or "NaN or infinity"
        return f"what is {self.reason.replace('_', ' ')}" + (f" ({what})" if what else "")

    def to_json(self, done: str) -> Json:
        """Return an entry of `result.json`, with its sentence as `text`; `done` is `refused` or `mixed`."""
        return {**self._asdict(), "text": self.sentence(done)}


class Outlier(NamedTuple):
    """A model or push-sum weight that was far larger than its receiver had seen before.

    Attributes:
        src: the sender.
        of: `weight` for a push-sum weight; else a model.
        node: the receiver.
        round: the round.
        size: the norm of the model, or the weight.
        usual: the largest that the receiver had seen before.
    """

    src: NodeId
    of: str
    node: NodeId
    round: int
    size: float
    usual: float

    @property
    def is_absurd(self) -> bool:
        """Whether the size is larger than any training could produce."""
        return self.size > ABSURD * self.usual

    def sentence(self) -> str:
        """Return a sentence that names the sender and what it sent."""
        whom = f"node {self.src} sent node {self.node}"
        if self.of == "weight":
            weight = f"{whom} push-sum weight of {self.size:.3g} in round {self.round}"
            return f"{weight}, where none had been above {self.usual:.3g}"
        what = "without push-sum weight" if self.size > NO_WEIGHT else f"of length {self.size:.3g}"
        return f"{whom} a model {what} in round {self.round}, where none had been longer than {self.usual:.3g}"


class Equivocation(NamedTuple):
    """A round in which `src` sent different messages to neighbors that should all get the same.

    `groups` are the neighbors, grouped by the message that they got.
    """

    src: NodeId
    round: int
    groups: Sequence[Sequence[NodeId]]

    def sentence(self) -> str:
        """Return a sentence that names the sender, and which of its neighbors got which message."""
        told = [f"node{'s' * (len(each) > 1)} {_some(each)}" for each in self.groups[:MOST_NAMED]]
        more = f" and {len(self.groups) - MOST_NAMED} more" * (len(self.groups) > MOST_NAMED)
        return (
            f"node {self.src} sent its neighbors different models in round {self.round}: one to "
            f"{', another to '.join(told)}{more}"
        )


def _some(nodes: Sequence[NodeId]) -> str:
    more = [f"{len(nodes) - MOST_NAMED} more"] * (len(nodes) > MOST_NAMED)
    return ", ".join([*map(str, nodes[:MOST_NAMED]), *more])


class Death(NamedTuple):
    """An unplanned end of a node."""

    node: NodeId
    round: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Observations:
    """The observations of a run by which it is judged.

    Attributes:
        series: the evaluations of the fleet's metrics.
        messages: the counts of messages.
        nbytes: the bytes sent.
        train_loss: the mean over nodes of the last training loss; None: unknown.
        timed_out: the number of waits that a deadline ended with a message missing.
        waits: the number of waits.
        lost_weight: the push-sum weight that deliveries gave up and restarts lost.
        new_weight: the push-sum weight that nodes brought that had lost their state.
        outliers: models and push-sum weights far larger than any before.
        least: the smallest push-sum weight that a node held.
        deaths: unplanned ends of nodes.
        crashes: scripted crashes after which a node did not return.
        not_finite: (node, first round) of losses that were not finite, in order of rounds; None: the average model.
        fell: the nodes whose own loss or parameters were not finite.
        refused: messages with odd contents that were refused.
        mixed: messages with odd contents that were averaged into a model.
        chance: the accuracy of a random guess; 0 where there are no classes.
        equivocal: rounds in which a node sent its neighbors different models.
    """

    series: Series
    messages: MessageCounts
    nbytes: int
    train_loss: float | None
    timed_out: int
    waits: int
    lost_weight: float
    new_weight: float
    outliers: Sequence[Outlier]
    least: HeldWeight | None
    deaths: Sequence[Death]
    crashes: Sequence[Crash]
    not_finite: Sequence[tuple[NodeId | None, int]]
    fell: Collection[NodeId]
    refused: Sequence[OddMessages]
    mixed: Sequence[OddMessages]
    chance: float = 0.0
    equivocal: Sequence[Equivocation] = ()


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
    cautions = find_cautions(_course(observed, facts, figures, [*not_finite, *sentences]))
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
        cautions=by_kind(cautions),
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


def _course(
    observed: Observations, facts: RunFacts, figures: Mapping[str, float | None], not_finite: Sequence[str]
) -> RunFigures:
    """Return the metrics and counts from which cautions about a run are derived.

    Of models that are far too large, only those of the first such round count, as later ones may come from mixing
    these.
    """
    first = list(_first(observed.outliers, "model"))
    return RunFigures(
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
        made=observed.new_weight / facts.nodes,
        crashed=_crashed_weight(observed) / facts.nodes,
        outliers=[each.sentence() for each in first if not each.is_absurd],
        absurd=[each.sentence() for each in first if each.is_absurd],
        equivocal=[each.sentence() for each in observed.equivocal if not facts.resumed],
        heavy=[each.sentence() for each in _first(observed.outliers, "weight")],
        plain=facts.delivery == "plain",
        versions=list(mixed(facts.software, deciding)),
    )


def _crashed_weight(observed: Observations) -> float:
    """Return the push-sum weight of nodes that ended too early; where nobody knows it, the 1 that a node began with."""
    return sum(1.0 if each.weight is None else each.weight for each in observed.crashes) + len(observed.deaths)


def _first(outliers: Sequence[Outlier], of: str) -> Iterator[Outlier]:
    """Yield the outliers of the kind `of` (`model` or `weight`) in the first round that has any."""
    some = [each for each in outliers if each.of == of]
    yield from (each for each in some if each.round == min(other.round for other in some))


def _not_finite(observed: Observations) -> Iterator[str]:
    """Yield a sentence for each node whose loss was not finite, the average model included.

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
        return f"mass error: {how}: the mean of the models was not kept"
    return f"mass error: {how}: the sum of w at the end is {weight_sum:.9g} of the number of nodes"
