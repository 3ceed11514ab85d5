"""The answer of a search for a deadline or quorum: the smallest value that reaches the target, and bounds on it.

Each value that was run has a decision: it reaches the target, misses it, or is undecided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from netdfl.core.errors import RunError
from netdfl.core.files import write_whole, writing
from netdfl.record.plain_json import dump_json
from netdfl.study.number_text import number
from netdfl.study.outcome import words
from netdfl.study.summary import Estimate, GridPoint, estimates
from netdfl.study.tuning.boundary import Boundary, Decision, boundary_of
from netdfl.study.tuning.values import Knob, TuneTarget

SCHEMA = "netdfl/tuning/1"
_ENDED_BADLY = ("deadlock", "stalled", "died")


@dataclass(frozen=True, slots=True)
class TriedValue:
    """A value of the deadline or quorum that was run.

    Attributes:
        value: the value as text.
        decision: whether it reaches the target.
        estimate: the mean of the target's metric over the runs, with its interval; None if no run has the metric.
        num_failed: the number of failed runs.
        note: a remark on the runs.
    """

    value: str
    decision: Decision
    estimate: Estimate | None
    num_failed: int = 0
    note: str = ""


def tried(value: str, point: GridPoint, target: TuneTarget, confidence: float) -> TriedValue:
    """Decide whether a value reaches the target, by the interval of the mean over its runs (`point`).

    The value misses the target if a run stalls at the end, deadlocks, loses a node or lacks the metric. If a run
    failed, nothing is decided.
    """
    found = estimates(point, target.figure, log=target.log, confidence=confidence)
    if point.num_failed:
        return TriedValue(value, "open", found, point.num_failed, "runs failed")
    bad = [name for name in _ENDED_BADLY if any(point.figures.get(name, ()))]
    if bad:
        return TriedValue(value, "misses", found, note=f"a run ended so: {', '.join(bad)}")
    if found is None or found.cells < len(point.by_seed):
        return TriedValue(
            value, "misses", found, note=f"a run has no {words(target.figure)}: it diverged, or measures none"
        )
    surely, hardly = (found.low, found.high) if target.is_least else (found.high, found.low)
    decision: Decision = "reaches" if target.met_by(surely) else "open" if target.met_by(hardly) else "misses"
    return TriedValue(value, decision, found)


@dataclass(frozen=True)
class SearchAnswer:
    """A search for the smallest deadline or quorum that reaches a target, with its decisions so far.

    Attributes:
        name: the name of the scenario.
        knob: the key that is searched.
        target: the target that the value must reach.
        confidence: the confidence of intervals, as a share.
        values: all values in ascending order.
        tried: the values that were run, by index.
    """

    name: str
    knob: Knob
    target: TuneTarget
    confidence: float
    values: Sequence[str]
    tried: Mapping[int, TriedValue] = field(default_factory=dict)

    @property
    def boundary(self) -> Boundary:
        """The indices of the tried values between which the smallest value that reaches the target lies."""
        return boundary_of({place: each.decision for place, each in self.tried.items()})

    @property
    def answer(self) -> str | None:
        """The smallest value that reaches the target with the required confidence; None if no value does."""
        place = self.boundary.reaches
        return None if place is None else self.values[place]

    @property
    def above(self) -> str | None:
        """The largest value that misses the target with the required confidence; None if no value does."""
        place = self.boundary.misses
        return None if place is None else self.values[place]

    @property
    def by_mean(self) -> str | None:
        """The smallest tried value from which on the mean over runs reaches the target, for all larger tried values.

        It is None if the mean for the largest value does not reach the target.
        """
        found = None
        for place in sorted(self.tried, reverse=True):
            each = self.tried[place]
            if each.decision == "misses" or each.estimate is None or not self.target.met_by(each.estimate.mean):
                break
            found = each.value
        return found

    def lines(self) -> list[str]:
        """Return the answer of the search in words."""
        sign = "at least" if self.target.is_least else "at most"
        goal = f"{words(self.target.figure)} of {sign} {number(self.target.figure, self.target.bound)}"
        sure = f"with {100 * self.confidence:g} % confidence"
        if self.answer is None:
            told = [f"no {self.knob} up to {self.values[-1]} reaches a {goal} {sure}"]
        else:
            told = [f"smallest {self.knob} that reaches a {goal} {sure}: {self.answer}"]
        told.append(
            f"interval: {self._interval()}" + (f"; by the mean of its runs: {self.by_mean}" * bool(self.by_mean))
        )
        return told + self._remarks()

    def _interval(self) -> str:
        low = "" if self.above is None else f"above {self.above}, which misses it"
        high = "no upper end" if self.answer is None else f"at most {self.answer}"
        return ", ".join(filter(None, [low or "no lower end", high]))

    def _remarks(self) -> list[str]:
        told = []
        if self.answer == self.values[0]:
            told.append(f"{self.answer} is the smallest value of all: give smaller ones with --values")
        elif self.answer is None:
            told.append("give larger ones with --values, or the target in reach; more --seeds make intervals narrower")
        if (pair := self.boundary.contradiction) is not None:
            small, large = (self.values[place] for place in pair)
            told.append(f"{small} reaches the target and {large} misses it: look at every value with --scan")
        return told

    def rows(self) -> list[list[str]]:
        """Return a row of text for each value that was run."""
        return [self._row(each) for _, each in sorted(self.tried.items())]

    def _row(self, each: TriedValue) -> list[str]:
        name, found = self.target.figure, each.estimate
        shown = ["0", "-", "-"]
        if found is not None:
            shown = [
                str(found.cells),
                number(name, found.mean),
                f"{number(name, found.low)} to {number(name, found.high)}",
            ]
        return [each.value, *shown, each.decision, each.note]

    def write(self, file: Path) -> None:
        """Write the answer and the decisions on all tried values as JSON. Raises RunError if the disk refuses."""
        data = {
            "schema": SCHEMA,
            "scenario": self.name,
            "tuned": self.knob,
            "figure": self.target.figure,
            "at_least" if self.target.is_least else "at_most": self.target.bound,
            "confidence": self.confidence,
            "answer": self.answer,
            "above": self.above,
            "by_mean": self.by_mean,
            "grid": list(self.values),
            "values": [self._plain(each) for _, each in sorted(self.tried.items())],
        }
        with writing(file, RunError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, (dump_json(data, indent=1) + "\n").encode())

    def _plain(self, each: TriedValue) -> dict[str, object]:
        found = each.estimate._asdict() if each.estimate else {}
        return {"value": each.value, "decision": each.decision, **found, "failed": each.num_failed, "note": each.note}


HEADINGS = ("value", "runs", "mean", "interval", "target", "note")
