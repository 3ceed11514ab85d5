"""The values among which a deadline or a quorum is searched, and the target that a value must reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from netdfl.core.errors import InputError
from netdfl.core.units import format_time, parse_probability, parse_time_ns
from netdfl.scenario.build import build_network
from netdfl.scenario.checks.waiting import in_degrees
from netdfl.scenario.model.schema import Scenario
from netdfl.study.plan import each_value, split_values

Knob: TypeAlias = Literal["deadline", "quorum"]
"""The key that is searched: the time that a node waits, or the number of messages that it waits for."""
PATHS: Mapping[Knob, str] = {"deadline": "wait.deadline", "quorum": "quorum"}
"""The name of each searched key in tables and plots."""
_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""The leading digits of the deadlines that are tried in each power of ten, if no values are given."""
_MOST_QUORUMS = 16
_LEAST_NS = 1000


@dataclass(frozen=True, slots=True)
class TuneTarget:
    """A bound for a metric at the end of a run: a least accuracy, or a largest consensus distance."""

    figure: str
    bound: float

    @property
    def is_least(self) -> bool:
        """Whether larger values of the metric are better."""
        return self.figure == "test_accuracy"

    @property
    def log(self) -> bool:
        """Whether the metric is averaged and drawn by its logarithm, as distances are."""
        return not self.is_least

    def met_by(self, value: float) -> bool:
        """Return whether a value of the metric meets the target."""
        return value >= self.bound if self.is_least else value <= self.bound


def read_target(accuracy: str | None, consensus: float | None) -> TuneTarget:
    """Return the target of `--accuracy` or `--consensus`, of which exactly one is given. Raises InputError."""
    if (accuracy is None) == (consensus is None):
        raise InputError("a search needs one target: give either --accuracy 90% or --consensus 1e-3")
    if consensus is not None:
        if not consensus > 0:
            raise InputError(f"--consensus {consensus:g}: a distance to stay below is above 0, like 1e-3")
        return TuneTarget("consensus_distance", consensus)
    try:
        return TuneTarget("test_accuracy", parse_probability(accuracy))
    except ValueError as error:
        raise InputError(f"--accuracy {accuracy}: {error}") from error


def read_confidence(text: str) -> float:
    """Return a confidence, as a share from 0.5 to below 1, from a text such as `95%`. Raises InputError."""
    try:
        found = parse_probability(text)
    except ValueError as error:
        raise InputError(f"--confidence {text}: {error}") from error
    if not 0.5 <= found < 1:
        raise InputError(f"--confidence {text}: runs drawn by chance give none of 100 %; write 50% to 99.9%, like 95%")
    return found


def given_values(knob: Knob, text: str) -> list[str]:
    """Return the values of `--values`, ascending. Raises InputError."""
    read = parse_time_ns if knob == "deadline" else _quorum
    try:
        found = {read(value): value for value in split_values(text)}
    except ValueError as error:
        raise InputError(f"--values {text}: {error}") from error
    if min(found) <= 0 or len(found) < 2:
        raise InputError(f"--values {text}: a search needs two different values or more, each above 0")
    return [found[value] for value in sorted(found)]


def _quorum(text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{text!r} is no quorum; write whole numbers of messages, like 1,2,4")
    return int(text)


def overrides(knob: Knob, values: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the overrides that set the key `knob`, by value."""
    if knob == "deadline":
        return each_value(PATHS[knob], values)
    return {value: [f"wait.for={{quorum: {value}}}"] for value in values}


def quorums(scenario: Scenario) -> list[str]:
    """Return at most sixteen quorums, from 1 to the largest number of senders to a node. Raises InputError."""
    _, most = in_degrees(build_network(scenario), range(1))
    if most < 2:
        raise InputError(f"{scenario.name}: a node hears from {most} others in a round, so no quorum can be chosen")
    count = min(most, _MOST_QUORUMS)
    return [str(1 + (most - 1) * place // (count - 1)) for place in range(count)]


def deadlines(round_s: Sequence[float], longest_s: Sequence[float]) -> list[str]:
    """Return deadlines as text, from a tenth of a usual round to twice the longest rounds, in steps of 1.3 to 1.7.

    Both arguments are in s and come from runs with `deadline: auto`: each run's median round, and the round that one in
    twenty exceeds.

    Raises InputError if rounds take no time.
    """
    low, high = min(round_s, default=0.0) * 1e8, max(longest_s, default=0.0) * 2e9
    if high < _LEAST_NS:
        raise InputError(
            "rounds take no time here, so no deadline ends a wait: give links a latency or a rate, or nodes "
            "world.compute; or say --values 10ms,100ms,1s"
        )
    return [format_time(ns) for ns in _ladder(max(low, _LEAST_NS), max(high, 2 * _LEAST_NS))]


def _ladder(low: float, high: float) -> Iterator[int]:
    """Yield deadlines in ns with leading digits from `_STEPS`, in rising order, so that they span `low` to `high`."""
    steps = [round(step * 10**decade) for decade in range(2, 15) for step in _STEPS]
    first = max(place for place, step in enumerate(steps) if step <= low)
    last = min((place for place, step in enumerate(steps) if step >= high), default=len(steps) - 1)
    yield from steps[first : last + 1]
