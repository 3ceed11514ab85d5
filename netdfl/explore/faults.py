"""The fault model: draws faults as entries of a scenario's `events`, based on a run without faults."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeAlias

from netdfl.core.types import NodeId
from netdfl.core.units import format_time, parse_time_ns
from netdfl.explore.execute import ExploredRun
from netdfl.explore.rows import MessageRow
from netdfl.explore.trial import Event
from netdfl.scenario.build import build_underlay
from netdfl.scenario.checks.catalog import find_problems
from netdfl.scenario.loading.document import Document
from netdfl.scenario.model.explore import EVERY_KIND, OVER_UNDERLAY, FaultKind
from netdfl.scenario.model.schema import Scenario
from netdfl.underlay.sites import CoreLink

LEAST_ROUND_NS = 1_000_000
"""Assumed length of a round in nanoseconds where rounds take no virtual time; durations of faults depend on it."""


_WHO = ("link", "drop", "delay", "crash", "pause", "slow_down", "partition")
NARROW_NODES, NARROW_ROUNDS = 3, 3
"""The most nodes and rounds to which drawn faults are limited when they are to be close together."""


@dataclass(frozen=True)
class Baseline:
    """The range of nodes, rounds and messages from which random faults are drawn, taken from a run without faults.

    Attributes:
        nodes: the number of nodes in the fleet.
        rounds: the number of rounds.
        round_ns: the length of a round.
        messages: the messages for which faults are drawn, at first all of the run.
        who: the nodes for which faults are drawn, at first all.
        when: the rounds in which faults begin, at first all.
        longest: the largest number of rounds that a fault lasts.
        core: the core links of the underlay that the messages of the run crossed, each direction by itself.
    """

    nodes: int
    rounds: int
    round_ns: int
    messages: Sequence[MessageRow]
    who: Sequence[NodeId]
    when: range
    longest: float = 8.0
    core: Sequence[CoreLink] = ()

    @classmethod
    def of(cls, run: ExploredRun) -> Baseline:
        """Return the nodes, rounds and messages from which faults are drawn: all of `run`, which had no faults."""
        scenario = run.scenario
        began = [0, *(each.at_ns for each in run.rows.measured if each.name == "round_s")]
        ended = 1 + max((each.round for each in run.rows.measured if each.name == "round_s"), default=0)
        round_ns = max(LEAST_ROUND_NS, max(began) // ended)
        everybody, always = range(scenario.num_nodes), range(scenario.rounds)
        messages, core = tuple(run.rows.messages), _crossed(run)
        return cls(scenario.num_nodes, scenario.rounds, round_ns, messages, everybody, always, core=core)

    def narrowed(self, rng: Random) -> Baseline:
        """Return this range limited to one node, some of its neighbors and a few rounds, so that drawn faults interact.

        Faults drawn from it may outlast the run by far, so that nodes that wait for their end reach their deadlines.
        """
        return self._around(rng.choice(self.who), rng.choice(self.when), rng)

    def near(self, events: Sequence[Event], rng: Random) -> Baseline:
        """Return this range limited to a node named in `events`, some of its neighbors, and a few rounds.

        The first of these rounds is one in which an event of `events` begins.
        """
        named = [str(event[key]) for event in events for key in _WHO if key in event]
        nodes = [int(node) for text in named for node in re.findall(r"\d+", text)]
        rounds = [r for event in events if (r := self._round_of(event)) in self.when]
        return self._around(rng.choice(nodes or self.who), rng.choice(rounds or self.when), rng)

    def _round_of(self, event: Event) -> int:
        at = event.get("at_round")
        return int(at) if at is not None else parse_time_ns(event.get("at", "0s")) // self.round_ns

    def _around(self, one: NodeId, first: int, rng: Random) -> Baseline:
        others = sorted({other for m in self.messages for other in (m.src, m.dst) if one in (m.src, m.dst)} - {one})
        who = [one, *rng.sample(others, min(len(others), rng.randint(0, NARROW_NODES - 1)))]
        when = range(first, min(self.rounds, first + rng.randint(1, NARROW_ROUNDS)))
        near = [m for m in self.messages if m.round in when and (m.src in who or m.dst in who)]
        longest = max(self.longest, 4.0 * self.rounds)
        return replace(self, who=who, when=when, messages=near or self.messages, longest=longest)

    def moment_ns(self, rng: Random) -> float:
        """Draw a time in ns, uniformly within the rounds `when`."""
        return rng.uniform(self.when.start * self.round_ns, self.when.stop * self.round_ns)


def _crossed(run: ExploredRun) -> Sequence[CoreLink]:
    """Return the core links that the messages of `run` crossed, in order of their names."""
    underlay = build_underlay(run.scenario)
    if underlay is None:
        return ()
    crossed = {link.name: link for edge in {(m.src, m.dst) for m in run.rows.messages} for link in underlay.way(edge)}
    return [crossed[name] for name in sorted(crossed)]


Draw: TypeAlias = Callable[["Baseline", Random], Event]


def draw_faults(
    course: Baseline, rates: Mapping[FaultKind, float], most: int, rng: Random, least: int = 0
) -> list[Event]:
    """Draw between `least` and `most` faults of the kinds in `rates`, at the nodes and rounds of `course`."""
    kinds = list(rates)
    if not kinds:
        return []
    chosen = rng.choices(kinds, [rates[kind] for kind in kinds], k=rng.randint(least, most))
    return [KINDS[kind](course, rng) for kind in chosen]


def allowed(scenario: Scenario, course: Baseline) -> tuple[dict[FaultKind, float], dict[FaultKind, str]]:
    """Return the kinds of faults that `scenario` can have, with their rates, and for other kinds the reasons against.

    `course` is a run without faults.
    """
    rates = scenario.explore.rates
    if scenario.underlay is not None and rates == EVERY_KIND:
        rates = OVER_UNDERLAY
    why = {kind: _refusal(scenario, course, kind) for kind in rates}
    return {kind: rates[kind] for kind in rates if not why[kind]}, {kind: why[kind] for kind in rates if why[kind]}


def _refusal(scenario: Scenario, course: Baseline, kind: FaultKind) -> str:
    if kind in ("loss", "delay") and not course.messages:
        return "no message was ever sent"
    if kind in ("cut", "partition", "loss", "delay") and course.nodes < 2:
        return "there is one node alone"
    if kind == "core" and not course.core:
        return "there is no underlay" if scenario.underlay is None else "no message crosses a core link"
    event = dict(KINDS[kind](course, Random(0)))
    alone = scenario.model_copy(update={"events": [event]})
    problems = find_problems(alone, Document("scenario"), frozenset())
    return str(problems[0].what) if problems else ""


# when


def _length(course: Baseline, rng: Random, least: float = 0.25, most: float | None = None) -> str:
    """Draw a duration from `least` to `most` rounds (None: `course.longest`), uniformly on a logarithmic scale."""
    ns = course.round_ns * math.exp(rng.uniform(math.log(least), math.log(most or course.longest)))
    return format_time(rounded(ns))


def rounded(ns: float) -> int:
    """Round a time in nanoseconds to two significant digits."""
    digits = max(0, len(str(round(ns))) - 2)
    return max(1, round(round(ns), -digits))


def _moment(course: Baseline, rng: Random) -> dict[str, object]:
    """Draw when a fault begins: at one of the rounds of `course`, or at any time within these rounds."""
    if rng.random() < 0.5:
        return {"at_round": rng.choice(course.when)}
    return {"at": format_time(rounded(course.moment_ns(rng)))}


def _span(course: Baseline, rng: Random) -> dict[str, object]:
    """Draw when a fault begins, at any time within the rounds of `course`, and for how long it lasts."""
    return {"at": format_time(rounded(course.moment_ns(rng))), "for": _length(course, rng)}


def _some_rounds(course: Baseline, rng: Random) -> dict[str, object]:
    return {"at_round": rng.choice(course.when), "for_rounds": rng.randint(1, 3)}


# the kinds


def _crash(course: Baseline, rng: Random) -> Event:
    return {**_moment(course, rng), "crash": rng.choice(course.who)}


def _crash_kept(course: Baseline, rng: Random) -> Event:
    return {**_crash(course, rng), "restart_after": _length(course, rng)}


def _crash_lost(course: Baseline, rng: Random) -> Event:
    return {**_crash_kept(course, rng), "state": "lost"}


def _cut(course: Baseline, rng: Random) -> Event:
    """Draw an outage of a link in one direction, for some rounds or for a drawn time."""
    link = _link(course, rng)
    if rng.random() < 0.5:
        return {**_some_rounds(course, rng), "link": link, "state": "down_drop"}
    return {**_span(course, rng), "link": link, "state": rng.choice(["down_drop", "down_hold", "down_reset"])}


def _partition(course: Baseline, rng: Random) -> Event:
    """Draw a network partition that separates some nodes from the others, for a drawn time."""
    first, size = rng.choice(course.who), rng.randint(1, max(1, course.nodes // 2))
    part = sorted((first + place) % course.nodes for place in range(size))
    rest = [node for node in range(course.nodes) if node not in part]
    return {**_span(course, rng), "partition": [part, rest], "mode": rng.choice(["down_drop", "down_hold"])}


def _pause(course: Baseline, rng: Random) -> Event:
    return {**_moment(course, rng), "pause": rng.choice(course.who), "for": _length(course, rng)}


def _slow(course: Baseline, rng: Random) -> Event:
    return {**_some_rounds(course, rng), "slow_down": rng.choice(course.who), "factor": rng.choice([2.0, 5.0, 20.0])}


def _loss(course: Baseline, rng: Random) -> Event:
    """Draw an event that drops one of the messages that a run without faults sent."""
    return name_message(rng.choice(course.messages), course.messages, "drop")


def _delay(course: Baseline, rng: Random) -> Event:
    """Draw an event that delays one of the messages that a run without faults sent."""
    late = name_message(rng.choice(course.messages), course.messages, "delay")
    return {**late, "by": _length(course, rng, 0.01, 4.0)}


def _core(course: Baseline, rng: Random) -> Event:
    """Draw a cut or a change of a core link that messages cross, in one direction or in both, for a drawn time."""
    link = rng.choice(course.core)
    both = any((other.src, other.dst) == (link.dst, link.src) for other in course.core) and rng.random() < 0.5
    name = f"{link.src}--{link.dst}" if both else link.name
    when = _span(course, rng)
    change = rng.choice(["cut", "cut", "loss", "latency", *(["rate"] if link.figures.rate_bps else [])])
    if change == "cut":
        return {**when, "cut": name, "mode": rng.choice(["down_drop", "down_hold", "down_reset"])}
    values: dict[str, object] = {"loss": rng.choice([0.5, 1.0]), "rate": rng.choice(["x0.5", "x0.1", "x0.02"])}
    return {**when, "core": name, change: values.get(change) or _length(course, rng, 0.01, 4.0)}


def name_message(sent: MessageRow, among: Sequence[MessageRow], action: str) -> dict[str, object]:
    """Return a scenario event that applies `action`, such as `drop`, to the message `sent`.

    The event has just enough keys to tell `sent` from the other messages in `among` with the same link and round.
    """
    event: dict[str, object] = {"at_round": max(0, sent.round), action: f"{sent.src}->{sent.dst}"}
    others = [m for m in among if m.round == sent.round and m.src == sent.src and m.dst == sent.dst]
    if any(m.kind != sent.kind for m in others):
        event["kind"] = sent.kind.value
    if any(m.step != sent.step for m in others if m.kind == sent.kind):
        event["step"] = sent.step
    if any(m.attempt or m.kind == "ack" for m in others):
        event["attempt"] = sent.attempt
    if any(m.epoch != sent.epoch for m in others):
        event["incarnation"] = sent.epoch
    return event


def _link(course: Baseline, rng: Random) -> str:
    sent = rng.choice(course.messages) if course.messages else None
    src, dst = (sent.src, sent.dst) if sent is not None else rng.sample(range(course.nodes), 2)
    return f"{src}->{dst}"


KINDS: Mapping[FaultKind, Draw] = {
    "crash": _crash,
    "crash_kept": _crash_kept,
    "crash_lost": _crash_lost,
    "cut": _cut,
    "partition": _partition,
    "pause": _pause,
    "slow": _slow,
    "loss": _loss,
    "delay": _delay,
    "core": _core,
}
