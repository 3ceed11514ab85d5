"""The outcome of one play: when the run ended, its bytes, and each figure of the fleet by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from netdfl.explore.execute import ExploredRun


class FigureAt(NamedTuple):
    """A figure in one round: its value, and when it was evaluated."""

    round: int
    at_ns: int
    value: float


@dataclass(frozen=True)
class PlayOutcome:
    """The outcome of a play.

    `whole` says that every node that should finish did. `drawn` counts the messages whose loss was drawn anew, as the
    run did not have them and their link's rule counts.
    """

    end_ns: int
    whole: bool
    nbytes: int
    figures: Mapping[str, Sequence[FigureAt]] = field(default_factory=dict)
    drawn: int = 0
    log_hash: str = ""


def outcome_of(run: ExploredRun, drawn: int = 0) -> PlayOutcome:
    """Return the outcome of a run in memory."""
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
