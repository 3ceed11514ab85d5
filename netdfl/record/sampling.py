"""Which messages a run records: all, or of those that were delivered at first sending only some, with exact totals.

What is odd is always recorded: every message that was not delivered, and every one that had to be sent again. Of the
others, which are most of a run and tell least, `every 10th` keeps one in ten, and `per_link` none. Numbers and bytes of
all are kept beside, by link and by round, so that whatever is counted stays exact.

Which are kept depends on their names alone (edge, round and step), never on the order in which they came: two runs of
a scenario keep the same messages, and a replay knows what to look for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from netdfl.core.fates import Fate
from netdfl.core.outcome import Outcome
from netdfl.core.types import NodeId
from netdfl.record.forms import OPEN

SAMPLING = "record.json"
"""In the run directory where not every message is recorded."""
ALL, PER_LINK = "all", "per_link"
EVERY = r"every [1-9]\d{0,8}(st|nd|rd|th)"
WORDS = rf"^({ALL}|{PER_LINK}|{EVERY})$"
_MASK = (1 << 64) - 1
_DELIVERED = Fate.DELIVERED.text
LinkKey: TypeAlias = tuple[NodeId, NodeId, Fate]
"""(src, dst, fate)"""
RoundKey: TypeAlias = tuple[str, int, int, Fate]
"""(kind, epoch, round, fate)"""
MOST_TOTALS = 50_000
"""So many are held before they are written, whether they have grown or not."""
GROWN = 8
"""Totals are written when they stand for so many messages each."""


@with_config(OPEN)
class SamplingForm(TypedDict):
    """`record.json`."""

    messages: Annotated[str, Field(pattern=WORDS)]


SAMPLING_FORM: TypeAdapter[SamplingForm] = TypeAdapter(SamplingForm)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How many of the messages that were delivered at first sending are recorded: every so many, 0: none."""

    every: int = 1

    @classmethod
    def of(cls, words: str) -> Sampling:
        """Of `all`, `per_link`, or `every 10th`. Raises ValueError for other words."""
        if re.fullmatch(EVERY, words):
            return cls(int(words.removeprefix("every ")[:-2]))
        return cls({ALL: 1, PER_LINK: 0}[words])

    @property
    def is_all(self) -> bool:
        """Whether every message is recorded."""
        return self.every == 1

    @property
    def words(self) -> str:
        """What is recorded, in a sentence's part."""
        if self.is_all:
            return "every message recorded"
        if not self.every:
            return "only totals of messages recorded"
        return f"every {ordinal(self.every)} message recorded"

    @property
    def sentence(self) -> str:
        """What a reader of the record has to know of it; nothing where every message is there."""
        if self.is_all:
            return ""
        return f"{self.words}, beside those that were not delivered or were sent again; numbers and bytes are of all"

    def keeps(self, src: NodeId, dst: NodeId, round: int, step: int) -> bool:
        """Whether the message of this name is recorded, whatever becomes of it."""
        if self.every < 2:
            return self.every == 1
        mixed = (src * 0x9E3779B97F4A7C15 ^ dst * 0xC2B2AE3D27D4EB4F ^ round * 0x165667B19E3779F9 ^ step) & _MASK
        return (((mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & _MASK) >> 32) % self.every == 0

    def records(self, src: NodeId, dst: NodeId, round: int, step: int, attempt: int, fate: str) -> bool:
        """Whether a row with this text as its fate is recorded."""
        return fate != _DELIVERED or attempt > 0 or self.keeps(src, dst, round, step)


EVERYTHING = Sampling()


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


class Totals:
    """Messages and bytes by link, and by round; of those also until when. What is written is added up by who reads."""

    def __init__(self) -> None:
        """Begin with none."""
        self.links: dict[LinkKey, list[int]] = {}
        self.rounds: dict[RoundKey, list[int]] = {}
        self._counted, self._written = 0, False

    def add(self, outcome: Outcome) -> None:
        """Count messages."""
        edges, id, nbytes, sent_ns, arrived_ns, fate = outcome
        links, num = self.links, len(edges)
        self._counted += num
        for src, dst in edges:
            link = links.get((src, dst, fate))
            if link is None:
                links[src, dst, fate] = [1, nbytes]
            else:
                link[0] += 1
                link[1] += nbytes
        until_ns = sent_ns if arrived_ns is None else arrived_ns
        of = self.rounds.setdefault((id.kind, id.incarnation, id.at.round, fate), [0, 0, until_ns])
        of[0] += num
        of[1] += num * nbytes
        of[2] = max(of[2], until_ns)

    @property
    def full(self) -> bool:
        """Whether there are as many as may be held."""
        return len(self.links) >= MOST_TOTALS

    @property
    def due(self) -> bool:
        """Whether to write them now: the first that there are, and then as they have grown."""
        return bool(self._counted) and (not self._written or self._counted >= GROWN * len(self.links))

    def written(self) -> None:
        """Begin anew: what was counted is written."""
        self.links.clear()
        self.rounds.clear()
        self._counted, self._written = 0, True
