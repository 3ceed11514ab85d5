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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from netdfl.core.versions import deciding, mixed
from netdfl.record.evaluated import Series, last_of, values_of
from netdfl.record.observations import Observations, Outlier, RunFacts, some_of

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
GROWING = ("consensus_distance", "test_loss", "error")
"""Metrics whose growth shows that training diverges."""


class CautionKind(StrEnum):
    """The kind of a caution, which is a sentence to read before a run's results."""

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


def find_cautions(observed: Observations, facts: RunFacts, not_finite: Sequence[str]) -> list[Caution]:
    """Return all cautions about a run, the most serious first.

    `not_finite` are sentences about the run's values that are not finite. If models were far too large, only those of
    the first such round count, because later ones may come from mixing these.
    """
    broken = [
        *(Caution(CautionKind.NOT_FINITE, text) for text in not_finite),
        *_collapse(observed),
        *_divergence(observed.series),
    ]
    models = sorted(_first(observed.outliers, "model"), key=lambda each: not each.is_absurd)
    equivocal = () if facts.resumed else observed.equivocal
    return [
        *broken,
        *(Caution(CautionKind.OUTLIER, each.sentence()) for each in models if each.is_absurd or broken),
        *(Caution(CautionKind.EQUIVOCATION, each.sentence()) for each in equivocal),
        *_made_weight(observed, facts),
        *(list(_weight(observed, facts)) or _low_weight(observed)),
        *_timeouts(observed),
        *(Caution(CautionKind.VERSIONS, text) for text in mixed(facts.software, deciding)),
    ]


def _first(outliers: Sequence[Outlier], of: str) -> list[Outlier]:
    """Return the outliers of the kind `of` (`model` or `weight`) in the first round that has any."""
    some = [each for each in outliers if each.of == of]
    return [each for each in some if each.round == min(other.round for other in some)]


def _collapse(observed: Observations) -> Iterator[Caution]:
    accuracy = values_of(observed.series, "test_accuracy")
    if not accuracy:
        return
    best, last = max(accuracy), accuracy[-1]
    gain = best - observed.chance
    if gain >= LEAST_GAIN and best - last > FALLEN * gain:
        text = f"collapsed: the average model's accuracy fell from {best:.1%} to {last:.1%}"
        yield Caution(CautionKind.COLLAPSED, text)


def _divergence(series: Series) -> Iterator[Caution]:
    for name in GROWING:
        values = values_of(series, name)
        if not values:
            continue
        first, last = max(values[: max(1, len(values) // FIRST)]), values[-1]
        if last > max(GROWN * first, LEAST_GROWN):
            text = f"diverged: the {name.replace('_', ' ')} grew from {first:.3g} to {last:.3g}"
            yield Caution(CautionKind.DIVERGED, text)


def _timeouts(observed: Observations) -> Iterator[Caution]:
    timed_out, waits = observed.timed_out, observed.waits
    if timed_out > TIMEOUTS * waits:
        share = f"{timed_out / waits:.0%}"
        text = f"deadlines ended {timed_out:,} of {waits:,} waits ({share}) with a message missing"
        yield Caution(CautionKind.TIMEOUTS, text)


def _low_weight(observed: Observations) -> Iterator[Caution]:
    if observed.least is not None and observed.least.weight < LOW_WEIGHT:
        weight, round, node = observed.least
        text = f"the push-sum weight of node {node} was down to {weight:.3g} in round {round}"
        remedy = "let it receive from more nodes, or give its steps a clip_norm"
        yield Caution(CautionKind.LOW_WEIGHT, f"{text}: steps are divided by it, and training may diverge; {remedy}")


def _made_weight(observed: Observations, facts: RunFacts) -> Iterator[Caution]:
    weight, heavy = last_of(observed.series, "weight_sum"), _first(observed.outliers, "weight")
    if weight is not None and weight > 1 + observed.new_weight / facts.nodes + ROUNDED:
        text = f"push-sum weight was made up: the nodes hold {weight:.3g} of what they began with"
        if observed.messages.undeliverable and facts.delivery != "plain" and not heavy:
            why = "a share that its sender took back, because the receiver was gone, had come before"
        else:
            why = "some member sent weight that it did not have"
        yield Caution(CautionKind.WEIGHT_MADE, f"{text}; {why}")
        yield from (Caution(CautionKind.OUTLIER, each.sentence()) for each in heavy)


def _weight(observed: Observations, facts: RunFacts) -> Iterator[Caution]:
    weight, counts = last_of(observed.series, "weight_sum"), observed.messages
    if weight is None:
        return
    lost, never_came = observed.lost_weight / facts.nodes, counts.lost + counts.undeliverable
    plain = facts.delivery == "plain"
    if told := plain and never_came > 0:
        lost = max(lost, 1 - weight - _crashed_weight(observed) / facts.nodes)
    if lost > WEIGHT:
        why = _lost_with(observed, never_came) if plain else ""
        still = f", and {counts.unfinished:,} messages were still on their way"
        under_way = still.replace("messages were", "message was") if counts.unfinished == 1 else still
        text = f"push-sum weight was lost{why}: the nodes hold {weight:.3g} of what they began with"
        yield Caution(CautionKind.WEIGHT_LOST, text + under_way * (told and counts.unfinished > 0))


def _lost_with(observed: Observations, never_came: int) -> str:
    """Return a phrase about how the missing push-sum weight was lost, or nothing: ` with the state of node 3`."""
    gone = sorted({*observed.lost_states, *(c.node for c in observed.crashes), *(d.node for d in observed.deaths)})
    states = f"the states of nodes {some_of(gone)}" if len(gone) > 1 else f"the state of node {some_of(gone)}"
    messages = "the message" if never_came == 1 else f"the {never_came:,} messages"
    found = [states] * bool(gone) + [f"{messages} that never came"] * (never_came > 0)
    return f" with {' and '.join(found)}" if found else ""


def _crashed_weight(observed: Observations) -> float:
    """Return the push-sum weight of nodes that ended too early; if unknown, the 1 that a node began with."""
    return sum(1.0 if each.weight is None else each.weight for each in observed.crashes) + len(observed.deaths)
