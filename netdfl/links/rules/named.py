"""What the schedule does to messages that it names: they vanish, or come later than they would have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from netdfl.core.fates import SCRIPTED, FateReason
from netdfl.core.types import Kind
from netdfl.links.rules.base import DROPPED, LONG_AGO, Delaying, LinkEvent, Stage, StageOutcome, Transit, resets


@dataclass(frozen=True, slots=True)
class Named:
    """Messages by name: of rounds, or those that enter the link in a time; of any kind, step, attempt unless given.

    `by_ns` is how much later they come; None: they never do.
    """

    at_ns: int | None = None
    until_ns: int | None = None
    at_round: int | None = None
    until_round: int | None = None
    kind: Kind | None = None
    step: int | None = None
    attempt: int | None = None
    by_ns: int | None = None

    def matches(self, unit: Transit, now_ns: int) -> bool:
        """Whether `unit`, which enters at `now_ns`, is one of these; a heartbeat is meant by its kind alone."""
        round = unit.of_round if self.kind is None else unit.round
        return (
            (self.at_round is None or round >= self.at_round)
            and (self.until_round is None or round < self.until_round)
            and (self.at_ns is None or now_ns >= self.at_ns)
            and (self.until_ns is None or now_ns < self.until_ns)
            and self.kind in (None, unit.kind)
            and self.step in (None, unit.step)
            and self.attempt in (None, unit.attempt)
        )


class NamedLoss(Stage):
    """The stage that loses what is named."""

    __slots__ = ("named",)
    reason: ClassVar[FateReason] = SCRIPTED

    def __init__(self, named: Sequence[Named]) -> None:
        """Lose whatever one of `named` matches."""
        self.named = tuple(named)

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Pass or drop `unit`."""
        return DROPPED if any(each.matches(unit, now_ns) for each in self.named) else now_ns


class NamedDelay(Delaying):
    """The stage that keeps back what is named, as the last of a link's own.

    What several name is kept back by the sum. Nothing overtakes what is kept back: a link that keeps its messages in
    order goes on doing so. A reset of the link drops what is here.
    """

    __slots__ = ("_last_ns", "named")

    def __init__(self, named: Sequence[Named]) -> None:
        """Keep back whatever `named` matches."""
        super().__init__()
        self.named = tuple(named)
        self._last_ns = LONG_AGO

    def advance(self, unit: Transit, now_ns: int) -> int:
        """The time at which `unit` arrives at the other end."""
        by_ns = sum(each.by_ns or 0 for each in self.named if each.matches(unit, now_ns))
        at_ns = max(now_ns + by_ns, self._last_ns)
        if by_ns:
            self._last_ns = at_ns
        return at_ns

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Drop what is kept back at a reset."""
        if resets(event):
            self._last_ns = now_ns
        return super().changed(event, now_ns)
