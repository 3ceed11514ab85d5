"""Targets: the quantities by which runs are compared, as costs. A smaller cost is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from netdfl.blame.outcome import FigureAt, PlayOutcome
from netdfl.core.errors import InputError
from netdfl.core.units import format_time, parse_probability
from netdfl.scenario.model.schema import Scenario, Target

TARGETS = "end, bytes, accuracy, 'accuracy: 90%' or 'consensus: 0.01'"
_NAMES = {"accuracy": "test_accuracy", "consensus": "consensus_distance"}
_RISING = ("test_accuracy",)


@dataclass(frozen=True)
class BlameTarget:
    """A quantity by which runs are compared: the end, the bytes sent, a metric's last value, or the time to a bound.

    Attributes:
        name: `end`, `bytes`, or a text about the metric.
        figure: the name of the metric; empty for `end` and `bytes`.
        at_least: the value that the metric must reach, or None.
        at_most: the value that the metric must fall to, or None.
    """

    name: str
    figure: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_time(self) -> bool:
        """Whether costs are times in nanoseconds."""
        return self.name == "end" or self.at_least is not None or self.at_most is not None

    def cost(self, outcome: PlayOutcome) -> float | None:
        """Return the cost of a run: ns, bytes, or minus the metric's last value; None if the run misses the target."""
        if self.name == "end":
            return outcome.end_ns if outcome.whole else None
        if self.name == "bytes":
            return outcome.nbytes
        if not self.is_time:
            values = outcome.figures.get(self.figure, ())
            return -values[-1].value if values else None
        reached = self.reached(outcome)
        return None if reached is None else reached.at_ns

    def reached(self, outcome: PlayOutcome) -> FigureAt | None:
        """Return the first evaluation whose value is within the target's bounds; None if there is none."""
        return next((each for each in outcome.figures.get(self.figure, ()) if self._holds(each.value)), None)

    def _holds(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def told(self, cost: float) -> str:
        """Return a cost as text, with its unit."""
        if self.is_time:
            return format_time(int(cost))
        return f"{int(cost):,} bytes" if self.name == "bytes" else f"{-cost:.2%}"

    def gain_told(self, gain: float, of: float) -> str:
        """Return a gain as text, with the percentage of the run's cost `of` that it is."""
        if not gain:
            return "nothing"
        if not self.is_time and self.name != "bytes":
            return self.size(gain)
        share = f", {100 * abs(gain) / of:.3g} %" if of else ""
        return f"{self.size(abs(gain))} {'less' if gain > 0 else 'more'}{share}"

    def size(self, gain: float) -> str:
        """Return a gain as text: time or bytes without a sign, accuracy in percentage points with its sign."""
        return self.told(gain) if self.is_time or self.name == "bytes" else f"{100 * gain:+.2f} points"


def read_target(text: str) -> BlameTarget:
    """Return the target that the text of the option --target names. Raises InputError for any other text."""
    name, _, bound = (part.strip() for part in text.partition(":"))
    if name in ("end", "bytes") and not bound:
        return BlameTarget(name)
    if name == "accuracy" and not bound:
        return BlameTarget(name, _NAMES[name])
    figure = _NAMES.get(name)
    if figure is None or not bound:
        raise InputError(f"--target {text!r} is no target; use {TARGETS}")
    try:
        value = parse_probability(bound) if figure in _RISING else float(bound)
    except ValueError as error:
        raise InputError(f"--target {text!r}: {error}; use {TARGETS}") from error
    if not isfinite(value):
        raise InputError(f"--target {text!r} has no finite bound; use {TARGETS}")
    return _bounded(figure, value)


def default_target(scenario: Scenario) -> BlameTarget:
    """Return the first target that the scenario reports; the end of the run where it reports none."""
    targets: Sequence[float | Target] = scenario.report.targets
    if not targets:
        return BlameTarget("end")
    first = targets[0]
    if isinstance(first, Target):
        bound = f"at least {first.at_least:g}" if first.at_least is not None else f"at most {first.at_most:g}"
        return BlameTarget(f"{first.metric} of {bound}", first.metric, first.at_least, first.at_most)
    return _bounded("test_accuracy", first)


def _bounded(figure: str, value: float) -> BlameTarget:
    if figure in _RISING:
        return BlameTarget(f"an accuracy of {100 * value:g} %", figure, at_least=value)
    return BlameTarget(f"a consensus distance of {value:g}", figure, at_most=value)
