"""The outcome of one rerun of a scenario, as it was or changed: its end, its bytes, and each metric by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from netdfl.explore.execute import ExploredRun


class FigureAt(NamedTuple):
    """The value of a metric of the fleet, such as its accuracy, after a round, evaluated at `at_ns` nanoseconds."""

    round: int
    at_ns: int
    value: float


@dataclass(frozen=True)
class PlayOutcome:
    """The outcome of one rerun of a scenario, as it was or without some possible causes of its cost.

    Attributes:
        end_ns: the virtual time at which the rerun ended.
        whole: whether every node that should finish did so.
        nbytes: the bytes of all messages.
        figures: the values of each metric of the fleet by round, by the metric's name.
        drawn: the number of messages that the run itself did not have, and whose loss was drawn at random for the
            rerun.
        log_hash: the hash of the event log.
    """

    end_ns: int
    whole: bool
    nbytes: int
    figures: Mapping[str, Sequence[FigureAt]] = field(default_factory=dict)
    drawn: int = 0
    log_hash: str = ""


def outcome_of(run: ExploredRun, drawn: int = 0) -> PlayOutcome:
    """Return the outcome of a run whose record is in memory; `drawn` is described at `PlayOutcome`."""
    found: dict[str, list[FigureAt]] = {}
    for at_ns, node, round, name, value in run.rows.measured:
        if node is None and isfinite(value):
            found.setdefault(name, []).append(FigureAt(round, at_ns, value))
    return PlayOutcome(
        end_ns=run.length_ns,
        whole=not run.unfinished and not any(not each.over and not each.suspected for each in run.stalls),
        nbytes=sum(message.nbytes for message in run.rows.messages),
        figures={name: sorted(values) for name, values in found.items()},
        drawn=drawn,
        log_hash=run.event_log_hash,
    )
