"""The stages for the schedule's actions `drop` and `delay`: lose or delay the messages that an event names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from netdfl.core.fates import SCRIPTED, FateReason
from netdfl.core.types import Kind
from netdfl.links.rules.base import ANY_NUMBER, DROPPED, DelayStage, Stage, Transit


@dataclass(frozen=True, slots=True)
class NamedMessages:
    """The messages that a `drop` or `delay` event names: by round or time of entry, optionally by kind, step, attempt.

    `incarnation` is how often the sender had restarted. `number` is the place among messages of the link that agree in
    kind, incarnation, round, step and attempt, as acknowledgements of one message do. `by_ns` is the added delay; None
    for a loss.
    """

    at_ns: int | None = None
    until_ns: int | None = None
    at_round: int | None = None
    until_round: int | None = None
    kind: Kind | None = None
    step: int | None = None
    attempt: int | None = None
    by_ns: int | None = None
    incarnation: int | None = None
    number: int | None = None

    def matches(self, unit: Transit, now_ns: int) -> bool:
        """Return whether the event names `unit`, which enters at `now_ns`; it names a heartbeat only with its kind."""
        round = unit.of_round if self.kind is None else unit.round
        return (
            (self.at_round is None or round >= self.at_round)
            and (self.until_round is None or round < self.until_round)
            and (self.at_ns is None or now_ns >= self.at_ns)
            and (self.until_ns is None or now_ns < self.until_ns)
            and self.kind in (None, unit.kind)
            and self.step in (None, unit.step)
            and self.attempt in (None, unit.attempt)
            and self.incarnation in (None, unit.incarnation)
            and (self.number is None or unit.number in (self.number, ANY_NUMBER))
        )


class MessageNumbers(Stage):
    """The first stage of a link where an event names messages by number: it counts messages of equal name.

    Messages have equal names if they agree in kind, sender's restarts, round, step and attempt.
    """

    __slots__ = ("counts", "named")

    def __init__(self, named: Sequence[NamedMessages]) -> None:
        """Count the messages that match any of the descriptions `named`, whose own number is ignored here."""
        self.named = tuple(replace(each, number=None) for each in named if each.number is not None)
        self.counts: Counter[tuple[object, ...]] = Counter()
        """How many messages were numbered so far, by kind, sender's restarts, round, step and attempt."""

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Set the number of the message `unit`: the count of earlier ones with the same kind, round, step and so on."""
        unit.number = 0
        if any(each.matches(unit, now_ns) for each in self.named):
            identity = (unit.kind, unit.incarnation, unit.round, unit.step, unit.attempt)
            unit.number = self.counts[identity]
            self.counts[identity] += 1
        return now_ns


class NamedLoss(Stage):
    """The stage that drops the messages that scheduled `drop` events name."""

    __slots__ = ("named",)
    reason: ClassVar[FateReason] = SCRIPTED

    def __init__(self, named: Sequence[NamedMessages]) -> None:
        """Drop the messages that any of `named`, descriptions of messages, matches."""
        self.named = tuple(named)

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Return `DROPPED` if an event names the message `unit`, else `now_ns`."""
        return DROPPED if any(each.matches(unit, now_ns) for each in self.named) else now_ns


class NamedDelay(DelayStage):
    """The stage that delays the messages that scheduled `delay` events name, the last of a link's own stages.

    If several events name a message, their delays add up. No later message overtakes a delayed one, so a link in order
    stays in order. A reset of the link drops the messages in this stage.
    """

    __slots__ = ("named",)

    def __init__(self, named: Sequence[NamedMessages]) -> None:
        """Delay the messages that any of `named`, descriptions of messages, matches."""
        super().__init__()
        self.named = tuple(named)

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Return the time at which the message `unit` leaves: later by the delay of each event that names it."""
        by_ns = sum(each.by_ns or 0 for each in self.named if each.matches(unit, now_ns))
        at_ns = max(now_ns + by_ns, self._last_ns)
        if by_ns:
            self._last_ns = at_ns
        return at_ns
