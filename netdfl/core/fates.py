"""What becomes of messages: each one's fate, its text where it is stored or sent, and the classes that people count.

The one home of the classification: live views, results, reports and studies all ask `Fate.counts_as`. A fate is a kind
and, where there is more to say, a reason, which is open: a link rule of a user's own, or another version of netdfl, may
give one that is not known here, and it is kept as it is. Between the parts of a process a fate is a value; it is text
only where it is stored or sent (`Fate.text`, `Fate.read`), so that nobody has to take texts apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import ClassVar, NamedTuple, NewType, Self

FateReason = NewType("FateReason", str)
"""One word that says why; empty where the kind says all."""
NO_REASON = FateReason("")
LOSS, CORRUPT, QUEUE, SCRIPTED = map(FateReason, ("loss", "corrupt", "queue", "scripted"))
DOWN, RESET, GONE, FOREIGN, MALFORMED = map(FateReason, ("down", "reset", "gone", "foreign", "malformed"))
"""Those of which more than one module knows."""


class FateKind(StrEnum):
    """How a message ended, as its receiver or its channel saw it. The names are those of the record."""

    DELIVERED = "delivered"
    LATE = "late"
    DUPLICATE = "duplicate"
    IN_FLIGHT = "in_flight"
    DROPPED = "dropped"
    REFUSED = "refused"
    FAILED = "failed"


class FateClass(StrEnum):
    """What a message counts as. Every message that was sent is in exactly one class."""

    DELIVERED = "delivered"
    LOST = "lost"
    UNDELIVERABLE = "undeliverable"
    LATE = "late"
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    UNFINISHED = "unfinished"


MEANINGS = {
    FateClass.DELIVERED: "came, and was taken by its receiver",
    FateClass.LOST: "dropped by a rule of its link: loss, a full queue, a link that is down",
    FateClass.UNDELIVERABLE: "its receiver was down or gone, or the connection to it broke",
    FateClass.LATE: "came when its receiver waited for it no more, and was not used",
    FateClass.DUPLICATE: "came, and a copy of it had come before",
    FateClass.REFUSED: "came, and was turned away: malformed, foreign, or its receiver had made its last round",
    FateClass.UNFINISHED: "still on its way at the end",
}
"""Each class in words."""

NOT_DELIVERED = tuple(name.value for name in FateClass if name is not FateClass.DELIVERED)
"""The names of all other classes."""

_TOLD = re.compile(r"[a-z_]+(:[\w.-]{1,64})?")
_CLASSES = {
    FateKind.DELIVERED: FateClass.DELIVERED,
    FateKind.LATE: FateClass.LATE,
    FateKind.DUPLICATE: FateClass.DUPLICATE,
    FateKind.IN_FLIGHT: FateClass.UNFINISHED,
    FateKind.DROPPED: FateClass.LOST,
    FateKind.REFUSED: FateClass.REFUSED,
    FateKind.FAILED: FateClass.UNDELIVERABLE,
}


class _KindAndReason(NamedTuple):
    kind: FateKind
    reason: FateReason = NO_REASON


class Fate(_KindAndReason):
    """What became of a message: a kind, and a reason where there is one to give.

    A tuple, so that equal fates are equal keys at the cost of two strings. `ARRIVED` are those of what came and was
    counted as come, whatever use it was; `GONE` is that of what was for a node that is down.
    """

    __slots__ = ()
    DELIVERED: ClassVar[Fate]
    LATE: ClassVar[Fate]
    DUPLICATE: ClassVar[Fate]
    IN_FLIGHT: ClassVar[Fate]
    REFUSED: ClassVar[Fate]
    GONE: ClassVar[Fate]
    ARRIVED: ClassVar[frozenset[Fate]]

    @classmethod
    def dropped(cls, reason: FateReason) -> Self:
        """A rule of its link ended it."""
        return cls(FateKind.DROPPED, reason)

    @classmethod
    def refused(cls, reason: FateReason) -> Self:
        """Its receiver turned it away."""
        return cls(FateKind.REFUSED, reason)

    @classmethod
    def failed(cls, reason: FateReason) -> Self:
        """Its channel broke, or its receiver was not there."""
        return cls(FateKind.FAILED, reason)

    @classmethod
    def read(cls, text: str) -> Self:
        """Read `text`, as it is stored, whatever its reason. Raises ValueError where its kind is none."""
        kind, _, reason = text.partition(":")
        return cls(FateKind(kind), FateReason(reason))

    @property
    def text(self) -> str:
        """Its form in the store and on the wire: `delivered`, `dropped:loss`."""
        return FATE_TEXTS[self]

    @property
    def counts_as(self) -> FateClass:
        """The class that people count it in."""
        return _CLASSES[self.kind]

    def __str__(self) -> str:
        return FATE_TEXTS[self]


class _Texts(dict[Fate, str]):
    """The text of each fate, made once: a fleet writes very many rows, of few fates."""

    def __missing__(self, fate: Fate) -> str:
        """Put it together."""
        text = self[fate] = f"{fate.kind.value}:{fate.reason}" if fate.reason else fate.kind.value
        return text


FATE_TEXTS = _Texts()
"""`Fate.text` without a call in Python: for the rows of the store and the lines of the event log."""

Fate.DELIVERED, Fate.LATE = Fate(FateKind.DELIVERED), Fate(FateKind.LATE)
Fate.DUPLICATE, Fate.IN_FLIGHT = Fate(FateKind.DUPLICATE), Fate(FateKind.IN_FLIGHT)
Fate.REFUSED, Fate.GONE = Fate(FateKind.REFUSED), Fate.failed(GONE)
Fate.ARRIVED = frozenset({Fate.DELIVERED, Fate.LATE, Fate.DUPLICATE})


def is_fate(text: str) -> bool:
    """Whether `text` is a fate with a reason of one word; who hears of one from another node asks first."""
    return text.partition(":")[0] in _CLASSES and _TOLD.fullmatch(text) is not None


@dataclass(slots=True)
class MessageCounts:
    """Messages by class: `sent` is the sum of all others. Not frozen: that takes seven times as long."""

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    undeliverable: int = 0
    late: int = 0
    duplicate: int = 0
    refused: int = 0
    unfinished: int = 0

    def __add__(self, other: MessageCounts) -> MessageCounts:
        """The messages of both."""
        return MessageCounts.total((self, other))

    @staticmethod
    def total(counts: Iterable[MessageCounts]) -> MessageCounts:
        """The messages of all of them."""
        return MessageCounts(*map(sum, zip(*map(_EACH, counts), strict=True)))


_EACH = attrgetter(*(each.name for each in fields(MessageCounts)))
