"""How messages end (their fates), such as delivered or lost: kinds, reasons, texts, and the classes for counting.

This is the one home of the classification: live views, results, reports and studies all use `Fate.counts_as`. A fate
is a kind, with a reason where there is more to say. Reasons are open: a user's own link rule, or another version of
netdfl, may give an unknown one, and it is kept. Within a process a fate is a value; it is text only where it is
stored or sent (`Fate.text`, `Fate.read`), so that no code has to take texts apart.

Relies on: texts that are data: stores and golden logs hold them, so kinds and reasons of earlier versions keep their
spelling.

Why: A fate that is text in flight is taken apart by each of its readers, by prefixes and suffixes, and each may read it
in another way. A value has one classification, and a reason that nobody knows passes through unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import ClassVar, NamedTuple, NewType, Self

FateReason = NewType("FateReason", str)
"""The reason why a message ended as it did, one word such as `loss`; empty where the kind of end says all."""
NO_REASON = FateReason("")
LOSS, CORRUPT, QUEUE, SCRIPTED = map(FateReason, ("loss", "corrupt", "queue", "scripted"))
DOWN, RESET, GONE, FOREIGN, MALFORMED = map(FateReason, ("down", "reset", "gone", "foreign", "malformed"))
OVERLOADED = FateReason("overloaded")
"""The reasons why messages were lost or refused that more than one module uses."""


class FateKind(StrEnum):
    """How a message ended (delivered, dropped, ...), as its receiver or its channel saw it.

    The run's record holds these values.
    """

    DELIVERED = "delivered"
    LATE = "late"
    DUPLICATE = "duplicate"
    IN_FLIGHT = "in_flight"
    DROPPED = "dropped"
    REFUSED = "refused"
    FAILED = "failed"


class FateClass(StrEnum):
    """The class in which a message is counted by how it ended, such as `lost` for a dropped one.

    Every sent message is in exactly one class.
    """

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
"""An explanation, for people, of each class in which messages are counted by how they ended."""

NOT_DELIVERED = tuple(name.value for name in FateClass if name is not FateClass.DELIVERED)
"""The names of all classes in which messages are counted by how they ended, but `delivered`."""

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
    """How a message ended, such as delivered or dropped: a kind, and a reason if there is more to say.

    A tuple, so that equal fates are equal keys at the cost of two strings. `ARRIVED` has the fates of messages that
    reached their receiver, used or not. `Fate.GONE` is the fate of a message to a node that is down.
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
        """Return how a message ended that a link rule dropped: dropped, with this reason."""
        return cls(FateKind.DROPPED, reason)

    @classmethod
    def refused(cls, reason: FateReason) -> Self:
        """Return how a message ended that its receiver refused: refused, with this reason."""
        return cls(FateKind.REFUSED, reason)

    @classmethod
    def failed(cls, reason: FateReason) -> Self:
        """Return how a message ended whose channel failed or whose receiver was absent: failed, with this reason."""
        return cls(FateKind.FAILED, reason)

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse the stored text of how a message ended, such as `dropped:loss`, with any reason.

        Raises ValueError for an unknown kind.
        """
        kind, _, reason = text.partition(":")
        return cls(FateKind(kind), FateReason(reason))

    @staticmethod
    def is_text(text: str) -> bool:
        """Return whether `text` is a known kind of message end, such as `dropped`, alone or with a one-word reason.

        Use it to check texts from other nodes.
        """
        return text.partition(":")[0] in _CLASSES and _TOLD.fullmatch(text) is not None

    @property
    def text(self) -> str:
        """How the message ended, as text in the store and on the wire: `delivered`, `dropped:loss`."""
        return FATE_TEXTS[self]

    @property
    def counts_as(self) -> FateClass:
        """The class in which a message that ended so is counted, such as `lost` for dropped ones."""
        return _CLASSES[self.kind]

    def __str__(self) -> str:
        return FATE_TEXTS[self]


class _FateTexts(dict[Fate, str]):
    """A cache of the texts of fates (how messages ended): a fleet writes very many rows, with few different fates."""

    def __missing__(self, fate: Fate) -> str:
        """Compose the text of how a message ended, such as `dropped:loss`, and store it in the cache."""
        text = self[fate] = f"{fate.kind.value}:{fate.reason}" if fate.reason else fate.kind.value
        return text


FATE_TEXTS = _FateTexts()
"""The text of each fate (how a message ended), as in `Fate.text` but faster: for the store and the event log."""

Fate.DELIVERED, Fate.LATE = Fate(FateKind.DELIVERED), Fate(FateKind.LATE)
Fate.DUPLICATE, Fate.IN_FLIGHT = Fate(FateKind.DUPLICATE), Fate(FateKind.IN_FLIGHT)
Fate.REFUSED, Fate.GONE = Fate(FateKind.REFUSED), Fate.failed(GONE)
Fate.ARRIVED = frozenset({Fate.DELIVERED, Fate.LATE, Fate.DUPLICATE})


@dataclass(slots=True)
class MessageCounts:
    """The numbers of messages by how they ended.

    Not frozen: a frozen one takes seven times as long to make.

    Attributes:
        sent: the sum of all classes.
        delivered: messages that their receiver took.
        lost: messages that a rule of their link dropped: by loss, a full queue, or a link that is down.
        undeliverable: messages whose receiver was down or gone, or whose connection broke.
        late: messages that came when their receiver no longer waited for them.
        duplicate: copies of messages that had come before.
        refused: messages that were turned away: malformed, foreign, or after the receiver's last round.
        unfinished: messages under way at the end.
    """

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    undeliverable: int = 0
    late: int = 0
    duplicate: int = 0
    refused: int = 0
    unfinished: int = 0

    def __add__(self, other: MessageCounts) -> MessageCounts:
        """Return the sums of both counts."""
        return MessageCounts.total((self, other))

    @staticmethod
    def total(counts: Iterable[MessageCounts]) -> MessageCounts:
        """Return the sums of all counts."""
        return MessageCounts(*map(sum, zip(*map(_EACH, counts), strict=True)))


_EACH = attrgetter(*(each.name for each in fields(MessageCounts)))
