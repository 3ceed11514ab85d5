"""Displays of a running fleet: a silent one, or one that also announces scheduled link changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from netdfl.core.clock import NS_PER_S
from netdfl.links.schedule.changes import LinkChange, link_changes
from netdfl.record.status import Display, FleetStatus
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.model.schema import Scenario


class SilentDisplay:
    """A display that does nothing."""

    def update(self, status: FleetStatus) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""


def announcing(display: Display, scenario: Scenario) -> Display:
    """Return a display that also announces scheduled link changes; `display` itself if there are none."""
    changes = link_changes(compile_schedule(scenario))
    return AnnouncingDisplay(display, changes) if changes else display


def say_layer(scenario: Scenario, display: Display) -> None:
    """Show a note that link rules act on packets, not on messages, if the scenario does not say so itself.

    Show nothing if the scenario has neither links nor events, or if its rules act on messages.
    """
    world = scenario.world
    written = (scenario.links or scenario.events) and "loss_layer" not in world.model_fields_set
    if written and world.loss_layer == "packet":
        display.note(
            "links lose and delay single packets, which TCP sends again, so messages come late rather than never; "
            "with `world: {loss_layer: message}` they lose whole messages"
        )


class Announcement(NamedTuple):
    """A text to show when a link change begins or ends.

    `at` is the time in ns or, if `by_round`, a round: the text is due when the first node begins that round or, if
    `ends`, when all nodes have done that many rounds.
    """

    at: int
    ends: bool
    by_round: bool
    words: str

    def has_come(self, status: FleetStatus) -> bool:
        """Return whether the text is due in the fleet's present state."""
        if not self.by_round:
            return self.at <= status.elapsed_s * NS_PER_S
        if self.ends:
            return self.at <= status.rounds_done
        return self.at <= max((node.round for node in status.nodes.values()), default=-1)


class AnnouncingDisplay:
    """A display that wraps another one, and announces scheduled link changes when they happen."""

    def __init__(self, display: Display, changes: Sequence[LinkChange]) -> None:
        """Prepare to announce the begin and the end of each of `changes` in `display`."""
        self._display = display
        self._due = sorted(chain.from_iterable(map(_turns, changes)), key=lambda turn: (turn.by_round, turn.at))

    def update(self, status: FleetStatus) -> None:
        """Announce changes since the last call, and pass the status on."""
        for turn in [turn for turn in self._due if turn.has_come(status)]:
            self._due.remove(turn)
            self._display.note(turn.words)
        self._display.update(status)

    def note(self, text: str) -> None:
        """Pass a note on to the inner display."""
        self._display.note(text)


def _turns(change: LinkChange) -> list[Announcement]:
    turns = [Announcement(change.begin, False, change.by_round, f"{change.words} ({change.when})")]
    if change.end is not None:
        turns.append(Announcement(change.end, True, change.by_round, f"{change.name} is over"))
    return turns
