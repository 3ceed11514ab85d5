"""A link's state: up, or down in one of three ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias, get_args

from netdfl.core.fates import DOWN, RESET, FateReason
from netdfl.links.rules.base import DROPPED, HELD, Departure, Drop, LinkEvent, RoundValues, Stage, StageOutcome, Transit

StateName: TypeAlias = Literal["up", "down_hold", "down_drop", "down_reset"]
STATES: tuple[StateName, ...] = get_args(StateName)
"""The states from the mildest to the most severe. Where several causes hold a link down, the most severe counts."""


class LinkState(Stage):
    """The stage that passes, holds or drops messages or packets by the link's state, before its other stages.

    - `up`: units pass.
    - `down_drop`: units that enter are dropped (`down`). Units in flight arrive.
    - `down_hold`: units that enter are held, and leave in order when the link is up again. A change
      to `down_drop` or `down_reset` drops them.
    - `down_reset`: like `down_drop`, and the units in the link's own stages at that moment are dropped
      (`reset`). A unit that waits in a node's uplink has not entered the link; a unit in a downlink has
      left it.
    """

    __slots__ = ("held", "rounds", "state")
    reason: ClassVar[FateReason] = DOWN

    def __init__(self, state: StateName = "up", rounds: RoundValues[StateName] | None = None) -> None:
        """Start in `state`; for the messages of some rounds, `rounds` gives another state."""
        self.state = state
        self.rounds = rounds
        self.held: list[Transit] = []

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Pass, drop or hold the message or packet `unit` according to the state."""
        state = self.state
        if self.rounds is not None:
            state = self.rounds.at(unit.of_round) or state
        if state == "up":
            return now_ns
        if state == "down_hold":
            self.held.append(unit)
            return HELD
        return DROPPED

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a new `state`; release or drop the held messages or packets."""
        self.state = event.get("state", self.state)
        if self.state == "down_hold" or not self.held:
            return ()
        units, self.held = self.held, []
        if self.state == "up":
            return [Departure(unit, now_ns) for unit in units]
        reason = RESET if self.state == "down_reset" else DOWN
        return [Drop(unit, reason) for unit in units]
