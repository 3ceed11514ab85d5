"""The values among which a deadline or a quorum is searched, and the target that they are to reach."""

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
"""The wait that is tuned, by its time or by its number of messages."""
PATHS: Mapping[Knob, str] = {"deadline": "wait.deadline", "quorum": "quorum"}
"""How tables and figures name it."""
_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""The numbers of a decade from which deadlines are taken where none are given."""
_MOST_QUORUMS = 16
_LEAST_NS = 1000


@dataclass(frozen=True, slots=True)
class TuneTarget:
    """The figure of a run that is to be at least, or at most, a bound at its end."""

    figure: str
    bound: float

    @property
    def is_least(self) -> bool:
        """Whether larger figures are better."""
        return self.figure == "test_accuracy"

    @property
    def log(self) -> bool:
        """Whether the figure is averaged and drawn by its logarithm."""
        return not self.is_least

    def met_by(self, value: float) -> bool:
        """Return whether a value of the figure meets the target."""
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
    """Return a confidence of 50 % or more and below 100 %. Raises InputError."""
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
    """Return the override for each value."""
    if knob == "deadline":
        return each_value(PATHS[knob], values)
    return {value: [f"wait.for={{quorum: {value}}}"] for value in values}


def quorums(scenario: Scenario) -> list[str]:
    """Return the quorums that can come on the scenario's graph, at most sixteen. Raises InputError."""
    _, most = in_degrees(build_network(scenario), range(1))
    if most < 2:
        raise InputError(f"{scenario.name}: a node hears from {most} others in a round, so no quorum can be chosen")
    count = min(most, _MOST_QUORUMS)
    return [str(1 + (most - 1) * place // (count - 1)) for place in range(count)]


def deadlines(round_s: Sequence[float], longest_s: Sequence[float]) -> list[str]:
    """Return deadlines from a tenth of the usual round to twice the longest ones, in steps of half or more.

    The figures are those of runs with `deadline: auto`: the median of a round, and what one round in twenty exceeds.
    Raises InputError where rounds take no time.
    """
    low, high = min(round_s, default=0.0) * 1e8, max(longest_s, default=0.0) * 2e9
    if high < _LEAST_NS:
        raise InputError(
            "rounds take no time here, so no deadline ends a wait: give links a latency or a rate, or nodes "
            "world.compute; or say --values 10ms,100ms,1s"
        )
    return [format_time(ns) for ns in _ladder(max(low, _LEAST_NS), max(high, 2 * _LEAST_NS))]


def _ladder(low: float, high: float) -> Iterator[int]:
    """Yield the steps of decades from the last at or below `low` to the first at or above `high`."""
    steps = [round(step * 10**decade) for decade in range(2, 15) for step in _STEPS]
    first = max(place for place, step in enumerate(steps) if step <= low)
    last = min((place for place, step in enumerate(steps) if step >= high), default=len(steps) - 1)
    yield from steps[first : last + 1]
