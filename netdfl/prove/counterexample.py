"""A counterexample: a schedule of faults that violates a property, as a scenario file with one sentence about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from netdfl.core.types import Json
from netdfl.explore.cause import FailureCause, cause_of, is_stall
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.findings import write_finding
from netdfl.explore.shrink import ShrunkScenario, beside, short_plain
from netdfl.prove.player import with_changes
from netdfl.prove.proof import ProofAnswer

_SHORTER = ("number", "incarnation", "attempt", "step", "kind")
"""Keys of an event that are left out, tried in this order, as long as the run stays the same without them."""


class Counterexample(NamedTuple):
    """A schedule of faults that violates a property, as the text of a scenario file, and a sentence about its run."""

    text: str
    sentence: str


def write_counterexample(answer: ProofAnswer) -> Counterexample:
    """Return the counterexample of a proof's answer as a scenario for `netdfl run`, with as few keys as possible."""
    assert answer.progress.broken is not None
    faults, name, how = answer.progress.broken
    executor = Executor()
    events = [fault.event for fault in faults]
    run = executor.run(with_changes(answer.scenario, events))
    for place in range(len(events)):
        for shorter in _shorter(events, place):
            again = executor.run(with_changes(answer.scenario, shorter))
            if again.event_log_hash == run.event_log_hash:
                events, run = shorter, again
    plain = short_plain(with_changes(answer.scenario, events))
    scenario = beside(answer.scenario, plain)
    cause = FailureCause(f"prove {name}", _sentence(run, name, how))
    note = (
        f"Found by `netdfl prove`, seed {scenario.seed}, as the smallest schedule that breaks a property ({name}) "
        f"within its bound: {answer.bound}."
    )
    shrunk = ShrunkScenario(scenario, plain, run, cause, answer.progress.played)
    return Counterexample(write_finding(shrunk, note), cause.text)


def _shorter(events: Sequence[Json], place: int) -> Iterator[list[Json]]:
    """Yield the events with the one at index `place` shortened, by one more of its keys each time."""
    event = dict(events[place])
    for key in _SHORTER:
        if key in event and ("drop" in event or "delay" in event):
            del event[key]
            yield [*events[:place], dict(event), *events[place + 1 :]]


def _sentence(run: ExploredRun, name: str, how: str) -> str:
    """Return how the run violates property `name`: a diagnosis of its stall, if it has one, else the text `how`."""
    cause = cause_of(run)
    told = cause is not None and is_stall(cause.key) and name != "push-sum weight kept"
    return cause.text if cause is not None and told else how
