"""The losses of a recorded run, message by message; a message that the run did not have is lost at random.

Relies on: messages of one name (kind, round, step and so on) that enter the link in the order in which they did in the
run.

Why: A rule that counts, like a burst's chain, decides by the order of messages. Where a run is repeated with one thing
changed, other messages come, and each that the first run had is lost or kept as there, by its name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from netdfl.core.types import Kind
from netdfl.core.units import NonNegativeInt, Probability
from netdfl.links.rules.base import Transit
from netdfl.links.rules.keyed_random import unit_uniform

_Name: TypeAlias = tuple[Kind, int, int, int, int]


@dataclass(frozen=True)
class RecordedFate:
    """Whether one message was lost. Of messages with one name, the first has the first fate, and so on.

    A name is the kind, the round, the step, the attempt and the number of the sender's restarts (`incarnation`); a fate
    is whether the message was lost.
    """

    round: int
    lost: bool = False
    step: NonNegativeInt = 0
    kind: Kind = Kind.DATA
    attempt: NonNegativeInt = 0
    incarnation: NonNegativeInt = 0


class RecordedLoss:
    """Lose the messages that a run lost, keep those that it did not, and lose others `otherwise`, by a keyed draw.

    Other messages, which the run did not have, are lost with the probability `otherwise`. The random draw is the same
    as for `bernoulli` on the link.
    """

    __slots__ = ("_fates", "messages", "otherwise", "seed")

    def __init__(self, seed: int, /, *, messages: list[RecordedFate], otherwise: Probability = 0.0) -> None:
        """Store whether each message was lost, in order of sending; others are lost with probability `otherwise`."""
        self.seed, self.messages, self.otherwise = seed, tuple(messages), otherwise
        self._fates = fates_by_name(messages)

    def lost(self, unit: Transit) -> bool:
        """Return whether the message `unit` is lost: as next recorded for its name or, without a record, at random."""
        fates = self._fates.get((unit.kind, unit.incarnation, unit.round, unit.step, unit.attempt))
        return fates.popleft() if fates else unit_uniform(self.seed, unit) < self.otherwise


def fates_by_name(messages: Sequence[RecordedFate]) -> dict[_Name, deque[bool]]:
    """Return whether the messages of each name were lost, in their order.

    A name is the kind, the sender's number of restarts, the round, the step and the attempt.
    """
    found: dict[_Name, deque[bool]] = {}
    for each in messages:
        name = each.kind, each.incarnation, each.round, each.step, each.attempt
        found.setdefault(name, deque()).append(each.lost)
    return found
