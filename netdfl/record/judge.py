"""The verdict on a run: default rules, the scenario's expectations, and the exit code."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, NamedTuple, TypeAlias

from netdfl.core.errors import InputError
from netdfl.core.fates import NOT_DELIVERED, FateClass
from netdfl.core.types import NodeId

Verdict: TypeAlias = Literal["pass", "done", "fail", "unknown"]
WELL = ("pass", "done")
"""Verdicts of runs that ended well: `pass` met expectations, `done` had none and broke no default rule."""

CAUTIONS = ("collapsed", "diverged", "weight_lost")
"""Cautions that an entry of `expect` may forbid or demand; `netdfl.record.cautions` defines them."""

FIGURES = (
    "test_accuracy",
    "mean_local",
    "mean_personal",
    "test_loss",
    "train_loss",
    "error",
    "consensus_distance",
    "weight_sum",
    "bytes_sent",
    "duration_s",
    "virtual_duration_s",
    *(name for name in NOT_DELIVERED if name != FateClass.UNFINISHED),
    "timeouts",
)
"""The names of a run's final metrics that an `expect` entry may bound with `at_least` and `at_most`.

The entry `unfinished` is about nodes, so the share of messages that are unfinished can't be bounded.
"""

_MEASURED = re.compile(r"(test|mean_local|mean_personal)_[A-Za-z]\w*")
"""Pattern of the names of metrics that a task defines itself: `test_mae`, `mean_personal_mae`."""


def is_measured(name: str) -> bool:
    """Return whether `name` can be the name of a metric that a task defines for a model."""
    return _MEASURED.fullmatch(name) is not None


def own_figure(name: str) -> str:
    """Return the task's own name for the metric `name`: `mae` for `test_mae`; empty if it is not a task's."""
    found = None if name in FIGURES else _MEASURED.fullmatch(name)
    return "" if found is None else name.removeprefix(f"{found[1]}_")


SHARES = frozenset({"test_accuracy", "mean_local", "mean_personal", "timeouts", *NOT_DELIVERED})
"""Metrics that are shown to people in percent: shares of test examples, of messages sent, of waits."""


class ExitCode(IntEnum):
    """The exit code of `netdfl run`."""

    PASS = 0
    FAIL = 1
    UNUSABLE = 2
    UNKNOWN = 3
    BROKE = 4
    INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The observations by which a run is judged.

    Attributes:
        died: a sentence about each node that died unplanned.
        deadlocks: sentences about deadlocks.
        open_stalls: sentences about stalls that did not end.
        not_finite: sentences about values that were not finite.
        fell: the nodes whose own loss or parameters were not finite.
        refused_not_finite: sentences about messages that were refused as not finite.
        num_refused: the number of such messages.
        num_delivered: the number of delivered messages.
        unfinished: sentences about nodes that should have finished and did not.
        cautions: sentences by names of `CAUTIONS`.
        figures: final values by names of `FIGURES`.
        fidelity_missed: why the links were not as the scenario asks; empty: they were.
        mass_error: why a resumed run's push-sum mass may differ from an unbroken run's; empty: it does not.
        broke: the error that ended the run; empty: none.
        interrupted: whether a user interrupted the run.
    """

    died: Mapping[NodeId, str] = field(default_factory=dict)
    deadlocks: Sequence[str] = ()
    open_stalls: Sequence[str] = ()
    not_finite: Sequence[str] = ()
    fell: Collection[NodeId] = ()
    refused_not_finite: Sequence[str] = ()
    num_refused: int = 0
    num_delivered: int = 0
    unfinished: Sequence[str] = ()
    cautions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    figures: Mapping[str, float | None] = field(default_factory=dict)
    fidelity_missed: str = ""
    mass_error: str = ""
    broke: str = ""
    interrupted: bool = False


class UnmetClaim(NamedTuple):
    """An expectation about a run, or a default rule, that the run did not meet.

    `entry` names the entry of `expect` or the default rule; `text` is a sentence about how the run breaks it.
    """

    entry: str
    text: str


class Judgement(NamedTuple):
    """The verdict on a run.

    Attributes:
        verdict: the verdict.
        reasons: sentences that say what the run did not meet; none for `pass` and `done`.
        exit_code: the exit code of `netdfl run`.
        entries: for each reason, the entry of `expect` or the default rule that the run did not meet.
        met: for `pass`, a sentence about each failure that `expect` demands and that occurred.
    """

    verdict: Verdict
    reasons: list[str]
    exit_code: ExitCode
    entries: tuple[str, ...] = ()
    met: tuple[str, ...] = ()

    @staticmethod
    def of(verdict: Verdict, unmet: Sequence[UnmetClaim], exit_code: ExitCode) -> Judgement:
        """Return a judgement whose reasons are the expectations and default rules in `unmet`, which a run missed."""
        texts = [each.text for each in unmet]
        return Judgement(verdict, texts, exit_code, tuple(each.entry for each in unmet))


def judge(findings: Evidence, expect: Mapping[str, object]) -> Judgement:
    """Judge a run by default rules and by the scenario's `expect`; an entry of `expect` replaces the default rule.

    A run that ends well is `pass` where anything is expected, and `done` where nothing is.
    `deadlock`, `stall`, `unfinished` and `not_finite` are `none` (the default), `some` (at least one must occur) or
    `any`. `died` may also be the list of exactly those nodes that must die. Where `not_finite` is not `none`, a node
    may die of its own numbers that are not finite. A message that was refused as not finite counts against an explicit
    `none`; against the default only if most messages were refused. The names of `CAUTIONS` are `any` by default: they
    are reported, and judged where the scenario asks. A name of `FIGURES` is bounded by `{at_least: x, at_most: y}`.

    Raises:
        InputError: an entry of `expect` means nothing.
    """
    grave, other = _unmet(findings, expect)
    if findings.interrupted:
        interrupted = UnmetClaim("interrupted", "the run was interrupted")
        return Judgement.of("unknown", [interrupted, *grave], ExitCode.INTERRUPTED)
    if findings.broke:
        return Judgement.of("unknown", [UnmetClaim("broke", findings.broke), *grave], ExitCode.BROKE)
    if grave:
        return Judgement.of("fail", grave + other, ExitCode.FAIL)
    doubts = [UnmetClaim("fidelity", findings.fidelity_missed), UnmetClaim("mass", findings.mass_error)]
    if any(each.text for each in doubts):
        return Judgement.of("unknown", [*(each for each in doubts if each.text), *other], ExitCode.UNKNOWN)
    if other:
        return Judgement.of("fail", other, ExitCode.FAIL)
    met = tuple(f"{_DEMANDED[name]} expected, and occurred" for name in _DEMANDED if _demands(expect.get(name)))
    return Judgement("pass" if expect else "done", [], ExitCode.PASS, met=met)


_DEMANDED: Mapping[str, str] = {
    "deadlock": "a deadlock was",
    "stall": "a stall at the end was",
    "died": "deaths of nodes were",
    "unfinished": "unfinished nodes were",
    "not_finite": "numbers that are not finite were",
    "collapsed": "a collapse of the accuracy was",
    "diverged": "divergence was",
    "weight_lost": "a loss of push-sum weight was",
}
"""The beginnings of sentences about entries of `expect` that may demand a failure."""


def _demands(expected: object) -> bool:
    """Return whether the value of an `expect` entry demands a failure: `some`, or a list of nodes that must die."""
    return expected == "some" or (isinstance(expected, Sequence) and not isinstance(expected, str) and bool(expected))


def _unmet(findings: Evidence, expect: Mapping[str, object]) -> tuple[list[UnmetClaim], list[UnmetClaim]]:
    """Return the default rules and entries of `expect` that the run does not meet, in two lists.

    The first has deaths, deadlocks and values that are not finite: they count even if the links were not as the
    scenario asks. The second has all others.
    """
    not_finite = expect.get("not_finite", "none")
    refused = findings.refused_not_finite if "not_finite" in expect else _mostly_refused(findings)
    met = [*findings.not_finite, *refused]
    grave = [
        *_deaths(findings.died, expect.get("died", "none"), () if not_finite == "none" else findings.fell),
        *_occurrences("deadlock", findings.deadlocks, expect.get("deadlock", "none")),
        *_occurrences("not_finite", met, not_finite),
    ]
    other = _occurrences("stall", findings.open_stalls, expect.get("stall", "none"))
    other += _occurrences("unfinished", findings.unfinished, expect.get("unfinished", "none"))
    for name in CAUTIONS:
        other += _occurrences(name, findings.cautions.get(name, ()), expect.get(name, "any"))
    for name, bounds in expect.items():
        if name not in _DEMANDED:
            other += _bounds(name, findings.figures, bounds)
    return grave, other


def _mostly_refused(findings: Evidence) -> list[str]:
    """Return sentences about refused messages, if more than half of all messages were refused for NaN or infinity."""
    if 2 * findings.num_refused <= findings.num_delivered:
        return []
    share = f"{findings.num_refused:,} of {findings.num_delivered:,} messages held NaN or infinity and were refused"
    return [share, *findings.refused_not_finite]


def _occurrences(name: str, found: Sequence[str], expected: object) -> list[UnmetClaim]:
    if expected == "any":
        return []
    if expected == "some":
        return [] if found else [UnmetClaim(name, f"{name}: some was expected, none occurred")]
    if expected == "none":
        return [UnmetClaim(name, text) for text in found]
    raise InputError(f"expect.{name} is {expected!r}; choose none, some or any")


def _deaths(died: Mapping[NodeId, str], expected: object, excused: Collection[NodeId]) -> list[UnmetClaim]:
    unexcused = {node: text for node, text in died.items() if node not in excused}
    if not isinstance(expected, Sequence) or isinstance(expected, str):
        return _occurrences("died", list((unexcused if expected == "none" else died).values()), expected)
    survived = sorted(set(expected) - set(died))
    others = [text for node, text in unexcused.items() if node not in expected]
    return [
        UnmetClaim("died", text) for text in (*others, *(f"node {i} was expected to die and did not" for i in survived))
    ]


def _bounds(name: str, figures: Mapping[str, float | None], bounds: object) -> list[UnmetClaim]:
    known = name in FIGURES or is_measured(name)
    if not known or not isinstance(bounds, Mapping) or not set(bounds) <= {"at_least", "at_most"}:
        raise InputError(
            f"expect.{name}: {bounds!r} can't be judged; bound one of {', '.join(FIGURES)} "
            "with {at_least: x} or {at_most: x}"
        )
    limits = {side: limit for side, limit in bounds.items() if limit is not None}
    value = figures.get(name)
    if value is None:
        never = f"{name} was expected to be {_words(name, limits)} and was never measured"
        return [UnmetClaim(name, never)] if limits else []
    met = limits.get("at_least", value) <= value <= limits.get("at_most", value)
    missed = f"{name} was expected to be {_words(name, limits)} and is {_number(name, value)}"
    return [] if met else [UnmetClaim(name, missed)]


def _words(name: str, limits: Mapping[str, float]) -> str:
    return " and ".join(f"{side.replace('_', ' ')} {_number(name, limit, digits=12)}" for side, limit in limits.items())


def _number(name: str, value: float, digits: int = 6) -> str:
    """Return `value` as text for people, with enough digits to tell it apart from a bound nearby."""
    return f"{100 * value:.{digits}g}%" if name in SHARES else f"{value:.{digits}g}"
