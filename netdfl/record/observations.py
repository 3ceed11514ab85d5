"""The data by which a run is judged: observations that its record holds, and facts that it does not.

Observations are read from the files of a run (`netdfl.record.result`) or from rows in memory
(`netdfl.explore.observed`). Cautions and verdict depend on nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from netdfl.core.fates import FateReason, MessageCounts
from netdfl.core.types import Json, NodeId
from netdfl.core.versions import Versions
from netdfl.record.bottleneck import SharedRates
from netdfl.record.evaluated import Series
from netdfl.record.remarks import Crash, Death, NodeEvent

MOST_NAMED = 8
MOST_LETTERS = 500
ABSURD = 1e12
NO_WEIGHT = 1e307
_PLACE = re.compile(r"^message \d+->\d+ of round -?\d+: ")
"""Pattern of the beginning of a refusal's text, before the part that says what was wrong with the message."""
_ODD = re.compile(r"expected (?P<expected>.*), got (?P<got>.*)")


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
        return f"node{'s' * (len(self.nodes) != 1)} {some_of(self.nodes)}"

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

    @classmethod
    def first_of(cls, events: Iterable[NodeEvent]) -> list[Self]:
        """Return each sender's first outlying model and first outlying push-sum weight, from receivers' `events`."""
        first: dict[tuple[object, str], Self] = {}
        found = [event for event in events if event[3] == "outlier"]
        for _, node, round, _, said in sorted(found, key=lambda event: (event[2], event[0], event[1])):
            src, of, size, usual = said.get("src"), str(said.get("of", "")), said.get("size"), said.get("usual")
            if isinstance(src, int) and isinstance(size, float | int) and isinstance(usual, float | int):
                first.setdefault((src, of), cls(src, of, node, round, size, usual))
        return sorted(first.values(), key=lambda each: (each.of, each.round, each.src))

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
        told = [f"node{'s' * (len(each) > 1)} {some_of(each)}" for each in self.groups[:MOST_NAMED]]
        more = f" and {len(self.groups) - MOST_NAMED} more" * (len(self.groups) > MOST_NAMED)
        return (
            f"node {self.src} sent its neighbors different models in round {self.round}: one to "
            f"{', another to '.join(told)}{more}"
        )


def some_of(nodes: Sequence[NodeId]) -> str:
    """Return node numbers as text: of many nodes, only the first ones, and how many more there are."""
    more = [f"{len(nodes) - MOST_NAMED} more"] * (len(nodes) > MOST_NAMED)
    return ", ".join([*map(str, nodes[:MOST_NAMED]), *more])


class HeldWeight(NamedTuple):
    """The push-sum weight that a node held at the end of a round."""

    weight: float
    round: int
    node: NodeId


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
        lost_states: the nodes that came back without their state and the push-sum weight in it.
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
    lost_states: Sequence[NodeId] = ()
