"""The tests of claims: paired differences over seeds by Student's t, with corrections of Bonferroni and Holm.

A claim is tested after certain numbers of seeds; each such test is called a look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias

from netdfl.study.claims.given import Claim, Rule
from netdfl.study.summary import Estimate, estimate, holm_corrected, paired_t

Word: TypeAlias = Literal["holds", "fails", "undecided"]
Gains: TypeAlias = Mapping[int, float]
"""The gain of one method over another by seed; it is positive if it supports the claim."""
TOO_SMALL = "the gain is less than half of what is printed"
"""The reason given for a claim that fails only by the test for the size of its gain."""


@dataclass(frozen=True)
class Decision:
    """The decision on one claim so far.

    Attributes:
        word: the verdict.
        seeds: the number of seeds that count.
        gain: the mean gain with its uncorrected 95 % interval; None without seeds.
        p: the corrected p-value of the hypothesis that the methods are equal.
        p_less: the corrected p-value of the hypothesis that the gain is at least half of the gain printed in the paper;
            1 if the setting is not the paper's.
        why: the reason why the claim fails; else empty.
    """

    word: Word
    seeds: int
    gain: Estimate | None
    p: float
    p_less: float
    why: str = ""


@dataclass(frozen=True)
class _Tests:
    """The p-values of one claim, corrected for the number of looks (tests after certain numbers of seeds).

    Attributes:
        direction: the smallest p-value of the hypothesis that the methods are equal.
        sign: the mean gain at the look with that p-value.
        less: the smallest p-value of the hypothesis that the gain is at least half of the gain printed in the paper.
    """

    direction: float = 1.0
    sign: float = 0.0
    less: float = 1.0


def decide(rule: Rule, gains: Mapping[str, Gains]) -> dict[str, Decision]:
    """Return the decision on each claim from its gains by seed; a claim without gains is undecided.

    Seeds are used in order, from the claim's first: those after a missing seed are not used yet.
    """
    used = {name: in_turn(gains.get(name, {}), claim.first_seed) for name, claim in rule.claims.items()}
    tested = {name: _test(rule, claim, used[name]) for name, claim in rule.claims.items()}
    directions = dict(zip(tested, holm_corrected([each.direction for each in tested.values()]), strict=True))
    less = dict(zip(tested, holm_corrected([each.less for each in tested.values()]), strict=True))
    return {name: _decision(rule, each, used[name], directions[name], less[name]) for name, each in tested.items()}


def in_turn(gains: Gains, first: int) -> list[float]:
    """Return the gains of the seeds from `first` on, up to the first missing one."""
    found: list[float] = []
    while first + len(found) in gains:
        found.append(gains[first + len(found)])
    return found


def _test(rule: Rule, claim: Claim, gains: Sequence[float]) -> _Tests:
    looks = [look for look in rule.looks if look <= len(gains)]
    found = _Tests()
    for look in looks:
        seen = gains[:look]
        p = min(1.0, len(rule.looks) * paired_t(seen))
        if p < found.direction:
            found = _Tests(p, fmean(seen), found.less)
        if claim.instead is None and claim.printed > 0:
            less = min(1.0, len(rule.looks) * _below(seen, claim.printed / 2))
            found = _Tests(found.direction, found.sign, min(found.less, less))
    return found


def _below(gains: Sequence[float], least: float) -> float:
    """Return the one-sided p-value of the hypothesis that the mean gain is `least` or more."""
    apart = [gain - least for gain in gains]
    both = paired_t(apart)
    return both / 2 if fmean(apart) < 0 else 1 - both / 2


def _decision(rule: Rule, tests: _Tests, gains: Sequence[float], p: float, p_less: float) -> Decision:
    gain = estimate(gains) if gains else None
    word: Word = "undecided"
    why = ""
    if p < rule.level:
        word, why = ("holds", "") if tests.sign > 0 else ("fails", "the other method is better")
    elif p_less < rule.level:
        word, why = "fails", TOO_SMALL
    return Decision(word, len(gains), gain, p, p_less, why)
