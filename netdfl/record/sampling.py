"""The choice of messages that a run records: all, or a sample of those delivered at first sending.

Every message that was not delivered or was sent again is always recorded. Of the others, which are most of a run and
tell the least, `every 10th` keeps one in ten, and `per_link` none. Numbers and bytes of all messages are kept
separately, by link and by round, so that every count stays exact.
The choice depends only on a message's edge, round and step, never on the order of arrival: two runs of a scenario
keep the same messages, and a replay knows which rows to expect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from netdfl.core.fates import Fate
from netdfl.core.types import NodeId
from netdfl.record.forms import OPEN

SAMPLING = "record.json"
"""Name of the file in the run directory, present where not every message is recorded."""
ALL, PER_LINK = "all", "per_link"
EVERY = r"every [1-9]\d{0,8}(st|nd|rd|th)"
WORDS = rf"^({ALL}|{PER_LINK}|{EVERY})$"
_MASK = (1 << 64) - 1
_DELIVERED = Fate.DELIVERED.text
GROWN = 8
"""Totals are written to the file once each sums up this many messages, on average."""


@with_config(OPEN)
class SamplingForm(TypedDict):
    """The schema of `record.json`, which says which messages of the run have a row."""

    messages: Annotated[str, Field(pattern=WORDS)]


SAMPLING_FORM: TypeAdapter[SamplingForm] = TypeAdapter(SamplingForm)


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling of messages delivered at first sending: one in `every` is recorded; 0 means none."""

    every: int = 1

    @classmethod
    def of(cls, words: str) -> Sampling:
        """Parse the scenario's sampling rule `words`: `all`, `per_link`, or `every 10th`.

        Raises KeyError for other text.
        """
        if re.fullmatch(EVERY, words):
            return cls(int(words.removeprefix("every ")[:-2]))
        return cls({ALL: 1, PER_LINK: 0}[words])

    @property
    def is_all(self) -> bool:
        """Whether every message is recorded."""
        return self.every == 1

    @property
    def words(self) -> str:
        """The sampling rule as a phrase within a sentence."""
        if self.is_all:
            return "every message recorded"
        if not self.every:
            return "only totals of messages recorded"
        return f"every {ordinal(self.every)} message recorded"

    @property
    def sentence(self) -> str:
        """The sampling rule as a sentence for readers of the record; empty if every message is recorded."""
        if self.is_all:
            return ""
        return f"{self.words}, beside those that were not delivered or were sent again; numbers and bytes are of all"

    def keeps(self, src: NodeId, dst: NodeId, round: int, step: int) -> bool:
        """Return whether the message of this edge, round and step is in the sample, whether it is delivered or not."""
        if self.every < 2:
            return self.every == 1
        mixed = (src * 0x9E3779B97F4A7C15 ^ dst * 0xC2B2AE3D27D4EB4F ^ round * 0x165667B19E3779F9 ^ step) & _MASK
        return (((mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & _MASK) >> 32) % self.every == 0

    def records(self, src: NodeId, dst: NodeId, round: int, step: int, attempt: int, fate: str) -> bool:
        """Return whether a message gets a row in the record; `fate` tells how it ended, such as `delivered`."""
        return fate != _DELIVERED or attempt > 0 or self.keeps(src, dst, round, step)


EVERYTHING = Sampling()


def ordinal(number: int) -> str:
    """Return a number as an ordinal: `1st`, `2nd`, `11th`."""
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"
