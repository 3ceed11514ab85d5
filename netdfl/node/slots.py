"""What was sent, remembered in little: the rounds and steps of one kind of message, as runs without gaps."""

from __future__ import annotations

from typing import TypeAlias

Slot: TypeAlias = tuple[int, int]
"""A round and a step."""
SlotRun: TypeAlias = tuple[Slot, Slot]
"""The first and the last slot of a run; between them every step of every round was sent that there was."""

MOST_RUNS = 256


class Slots:
    """The slots that were sent, of which the last 256 runs are remembered.

    A run goes on with the next step of its round, or with step 0 of the next round. On a static graph there is
    one run however long it lasts; where neighbors change, each message may be a run of its own.
    """

    __slots__ = ("_earlier", "_first", "_last", "life")

    def __init__(self, life: tuple[str, int], slot: Slot) -> None:
        """`slot` was sent, the first in this `life`: a kind of messages and an epoch of their sender."""
        self.life = life
        self._first = self._last = slot
        self._earlier: tuple[SlotRun, ...] = ()

    def add(self, slot: Slot) -> None:
        """`slot` is sent; one that is sent again is in already."""
        last = self._last
        if slot <= last:
            return
        rounds, step = slot[0] - last[0], slot[1]
        if not ((rounds == 1 and step == 0) or (rounds == 0 and step == last[1] + 1)):
            self._earlier = (*self._earlier[1 - MOST_RUNS :], (self._first, last))
            self._first = slot
        self._last = slot

    @property
    def runs(self) -> tuple[SlotRun, ...]:
        """All that is remembered, in order."""
        return (*self._earlier[1 - MOST_RUNS :], (self._first, self._last))
