"""What shows a fleet while it runs: the terminal's live view, or nothing; and what is said in it besides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from netdfl.core.clock import NS_PER_S
from netdfl.links.schedule.changes import Change, link_changes
from netdfl.record.status import Display, FleetStatus
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.model.schema import Scenario


class Silent:
    """Shows nothing."""

    def update(self, status: FleetStatus) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""


def announcing(display: Display, scenario: Scenario) -> Display:
    """Let `display` say what the schedule does to links."""
    changes = link_changes(compile_schedule(scenario))
    return Announcing(display, changes) if changes else display


def say_layer(scenario: Scenario, display: Display) -> None:
    """Say that links act on packets where the scenario has rules for them and leaves that to its world."""
    world = scenario.world
    written = (scenario.links or scenario.events) and "loss_layer" not in world.model_fields_set
    if written and world.loss_layer == "packet":
        display.note(
            "links lose and delay single packets, which TCP sends again, so messages come late rather than never; "
            "with `world: {loss_layer: message}` they lose whole messages"
        )


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
    """A `Display` around another, which says in it what the schedule does to links, when it does it."""

    def __init__(self, display: Display, changes: Sequence[Change]) -> None:
        """Announce the beginning and the end of each of `changes` in `display`."""
        self._display = display
        self._due = sorted(chain.from_iterable(map(_turns, changes)), key=lambda turn: (turn.by_round, turn.at))

    def update(self, status: FleetStatus) -> None:
        """Say what has come since the last time, and show the fleet."""
        for turn in [turn for turn in self._due if turn.has_come(status)]:
            self._due.remove(turn)
            self._display.note(turn.words)
        self._display.update(status)

    def note(self, text: str) -> None:
        """Show a piece of news."""
        self._display.note(text)


def _turns(change: Change) -> list[Turn]:
    turns = [Turn(change.begin, False, change.by_round, f"{change.words} ({change.when})")]
    if change.end is not None:
        turns.append(Turn(change.end, True, change.by_round, f"{change.entry} {change.where} is over"))
    return turns
