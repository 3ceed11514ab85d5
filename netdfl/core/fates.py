"""What becomes of messages: the fate that is recorded of each, and the few classes that people count.

The one home of the classification: live views, results, reports and studies all ask `class_of`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter


class Fate(StrEnum):
    """What became of a message, as its receiver or its channel saw it.

    A drop by a link rule is recorded as `dropped:<reason>`, a refusal as `refused:<reason>`, a
    failure of the channel as `failed:<reason>`.
    """

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

_FATE = re.compile(r"[a-z_]+(:[\w.-]{1,64})?")
_CLASSES = {
    Fate.DELIVERED: FateClass.DELIVERED,
    Fate.LATE: FateClass.LATE,
    Fate.DUPLICATE: FateClass.DUPLICATE,
    Fate.IN_FLIGHT: FateClass.UNFINISHED,
    Fate.DROPPED: FateClass.LOST,
    Fate.REFUSED: FateClass.REFUSED,
    Fate.FAILED: FateClass.UNDELIVERABLE,
}


def class_of(fate: str) -> FateClass:
    """The class of a recorded fate, like `dropped:loss`. Raises ValueError for what is no fate."""
    return _CLASSES[Fate(fate.partition(":")[0])]


def is_fate(text: str) -> bool:
    """Whether `text` is a fate; who hears of one from another node asks first."""
    return text.partition(":")[0] in _CLASSES and _FATE.fullmatch(text) is not None


def reason_of(fate: str) -> str:
    """What a recorded fate says beside its class: `loss` of `dropped:loss`; empty where it says no more."""
    return fate.partition(":")[2]


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
