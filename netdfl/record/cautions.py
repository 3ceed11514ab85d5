"""Cautions: sentences that a reader needs before a run's results, whatever the scenario expects.

A healthy run does not reach the thresholds. Each sentence holds the numbers that led to it:
- `collapsed`: the average model lost more than half of its best gain over chance, where that gain was ten points or
  more. Chance is one over the number of classes.
- `diverged`: the consensus distance (or the test loss, or a toy problem's error) is more than a hundred times the
  largest of the first tenth of its evaluations, and more than 10. A round adds at most its own drift, so without
  divergence the growth after a tenth of the rounds is about tenfold at most, however slowly the graph mixes.
- `timeouts`: deadlines ended more than a tenth of the waits that took time, with a message missing.
- `weight_lost`: more than a hundredth of the push-sum weight is gone. With plain delivery this is the weight that
  nodes lack at the end, where messages were lost or undeliverable; else the weight that deliveries gave up and
  crashes lost.
- `weight_made`: the nodes hold more push-sum weight than they began with, and than nodes brought that lost their state.
  Some member sent weight that it did not have.
- `outlier`: a node received a model whose norm was ten thousand times the largest norm before, in a run that collapsed,
  diverged, or met numbers that are not finite; or one with a norm that no training makes. Whoever sent it may be the
  cause.
- `equivocation`: a member sent some neighbors another model than others, by a method that sends all the same.
- `low_weight`: a node's push-sum weight fell below a ten-thousandth, and the other nodes' did not. Its local steps
  move its model by lr / w, so its training may diverge, and the divergence may spread.
- `versions`: some nodes ran on other versions than most nodes, or did not report theirs.
- `not_finite`: a loss, a model or a message was not finite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from netdfl.core.fates import MessageCounts
from netdfl.core.types import NodeId

FALLEN = 0.5
LEAST_GAIN = 0.1
GROWN = 100.0
LEAST_GROWN = 10.0
FIRST = 10
TIMEOUTS = 0.1
WEIGHT = 0.01
LOW_WEIGHT = 1e-4
ROUNDED = 1e-6
"""Sums of push-sum weights that differ by no more than this count as equal: rounding may be the cause."""


class CautionKind(StrEnum):
    """The kind of a caution."""

    COLLAPSED = "collapsed"
    DIVERGED = "diverged"
    LOW_WEIGHT = "low_weight"
    NOT_FINITE = "not_finite"
    TIMEOUTS = "timeouts"
    VERSIONS = "versions"
    EQUIVOCATION = "equivocation"
    OUTLIER = "outlier"
    WEIGHT_LOST = "weight_lost"
    WEIGHT_MADE = "weight_made"


@dataclass(frozen=True, slots=True)
class Caution:
    """A caution to read before a run's results: its kind, such as `diverged`, and its sentence."""

    kind: CautionKind
    text: str


def by_kind(cautions: Sequence[Caution]) -> dict[str, list[str]]:
    """Return the sentences of `cautions` by kind."""
    found: dict[str, list[str]] = {}
    for caution in cautions:
        found.setdefault(caution.kind.value, []).append(caution.text)
    return found


class HeldWeight(NamedTuple):
    """The push-sum weight that a node held at the end of a round."""

    weight: float
    round: int
    node: NodeId


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """The metrics and counts of a run from which cautions are derived.

    Attributes:
        accuracy: the test accuracies of the average model.
        chance: the accuracy of a random guess.
        grown: the values of each metric that shows divergence, by the metric's name in words.
        not_finite: sentences about values that are not finite.
        timed_out: the number of waits that a deadline ended.
        waits: the number of waits.
        messages: the counts of messages.
        weight: the last sum of push-sum weights w over the number of nodes; None for other methods.
        least: the smallest w above 0 of any node.
        gave_up: the share of all weight that deliveries and crashes are known to have lost.
        made: the share of all weight that nodes brought when they rejoined.
        crashed: the share of all weight that nodes held which ended too early.
        outliers: sentences about models whose norm is far too large.
        absurd: sentences about models with a norm that no training makes.
        heavy: sentences about push-sum weights that are far too large.
        equivocal: sentences about nodes that sent neighbors different models.
        plain: whether each message is sent only once, without acknowledgements (`delivery: plain`).
        versions: sentences about versions that differ between nodes.
    """

    accuracy: Sequence[float] = ()
    chance: float = 0.0
    grown: Mapping[str, Sequence[float]]
    not_finite: Sequence[str] = ()
    timed_out: int = 0
    waits: int = 0
    messages: MessageCounts
    weight: float | None = None
    least: HeldWeight | None = None
    gave_up: float = 0.0
    made: float = 0.0
    crashed: float = 0.0
    outliers: Sequence[str] = ()
    absurd: Sequence[str] = ()
    heavy: Sequence[str] = ()
    equivocal: Sequence[str] = ()
    plain: bool = True
    versions: Sequence[str] = ()


def find_cautions(course: RunFigures) -> list[Caution]:
    """Return all cautions about a run, the most serious first, from its metrics and counts (`course`)."""
    broken = [
        *(Caution(CautionKind.NOT_FINITE, text) for text in course.not_finite),
        *_collapse(course),
        *_divergence(course),
    ]
    return [
        *broken,
        *(Caution(CautionKind.OUTLIER, text) for text in (*course.absurd, *(course.outliers if broken else ()))),
        *(Caution(CautionKind.EQUIVOCATION, text) for text in course.equivocal),
        *_made_weight(course),
        *(list(_weight(course)) or _low_weight(course)),
        *_timeouts(course),
        *(Caution(CautionKind.VERSIONS, text) for text in course.versions),
    ]


def _collapse(course: RunFigures) -> Iterator[Caution]:
    if not course.accuracy:
        return
    best, last = max(course.accuracy), course.accuracy[-1]
    gain = best - course.chance
    if gain >= LEAST_GAIN and best - last > FALLEN * gain:
        text = f"collapsed: the average model's accuracy fell from {best:.1%} to {last:.1%}"
        yield Caution(CautionKind.COLLAPSED, text)


def _divergence(course: RunFigures) -> Iterator[Caution]:
    for name, values in course.grown.items():
        if not values:
            continue
        first, last = max(values[: max(1, len(values) // FIRST)]), values[-1]
        if last > max(GROWN * first, LEAST_GROWN):
            text = f"diverged: the {name} grew from {first:.3g} to {last:.3g}"
            yield Caution(CautionKind.DIVERGED, text)


def _timeouts(course: RunFigures) -> Iterator[Caution]:
    if course.timed_out > TIMEOUTS * course.waits:
        share = f"{course.timed_out / course.waits:.0%}"
        text = f"deadlines ended {course.timed_out:,} of {course.waits:,} waits ({share}) with a message missing"
        yield Caution(CautionKind.TIMEOUTS, text)


def _low_weight(course: RunFigures) -> Iterator[Caution]:
    if course.least is not None and course.least.weight < LOW_WEIGHT:
        weight, round, node = course.least
        text = f"the push-sum weight of node {node} was down to {weight:.3g} in round {round}"
        remedy = "let it receive from more nodes, or give its steps a clip_norm"
        yield Caution(CautionKind.LOW_WEIGHT, f"{text}: steps are divided by it, and training may diverge; {remedy}")


def _made_weight(course: RunFigures) -> Iterator[Caution]:
    if course.weight is not None and course.weight > 1 + course.made + ROUNDED:
        text = f"push-sum weight was made up: the nodes hold {course.weight:.3g} of what they began with"
        if course.messages.undeliverable and not course.plain and not course.heavy:
            why = "a share that its sender took back, because the receiver was gone, had come before"
        else:
            why = "some member sent weight that it did not have"
        yield Caution(CautionKind.WEIGHT_MADE, f"{text}; {why}")
        yield from (Caution(CautionKind.OUTLIER, text) for text in course.heavy)


def _weight(course: RunFigures) -> Iterator[Caution]:
    if course.weight is None:
        return
    lost, never_came = course.gave_up, course.messages.lost + course.messages.undeliverable
    if course.plain and never_came:
        lost = max(lost, 1 - course.weight - course.crashed)
    if lost > WEIGHT:
        messages = "the message" if never_came == 1 else f"the {never_came:,} messages"
        why = f" with {messages} that never came" if course.plain and never_came else ""
        text = f"push-sum weight was lost{why}: the nodes hold {course.weight:.3g} of what they began with"
        yield Caution(CautionKind.WEIGHT_LOST, text)
