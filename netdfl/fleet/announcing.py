"""Says in a run's view what the schedule does to links, when it does it: one home for every world."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from netdfl.core.clock import NS_PER_S
from netdfl.links.schedule.changes import Change
from netdfl.record.status import FleetStatus

if TYPE_CHECKING:
    from netdfl.fleet.run import View


class Turn(NamedTuple):
    """Something to say, at a time in ns or when the fleet is in a round: the first node, or (`ends`) the last."""

    at: int
    ends: bool
    by_round: bool
    words: str

    def has_come(self, status: FleetStatus) -> bool:
        """Whether it is time."""
        if not self.by_round:
            return self.at <= status.elapsed_s * NS_PER_S
        if self.ends:
            return self.at <= status.rounds_done
        return self.at <= max((node.round for node in status.nodes.values()), default=-1)


class Announcing:
    """A `View` around another."""

    def __init__(self, view: View, changes: Sequence[Change]) -> None:
        """Announce the beginning and the end of each of `changes` in `view`."""
        self._view = view
        self._due = sorted(chain.from_iterable(map(_turns, changes)), key=lambda turn: (turn.by_round, turn.at))

    def update(self, status: FleetStatus) -> None:
        """Say what has come since the last time, and show the fleet."""
        for turn in [turn for turn in self._due if turn.has_come(status)]:
            self._due.remove(turn)
            self._view.note(turn.words)
        self._view.update(status)

    def note(self, text: str) -> None:
        """Show a piece of news."""
        self._view.note(text)


def _turns(change: Change) -> list[Turn]:
    turns = [Turn(change.begin, False, change.by_round, f"{change.words} ({change.when})")]
    if change.end is not None:
        turns.append(Turn(change.end, True, change.by_round, f"{change.entry} {change.where} is over"))
    return turns
