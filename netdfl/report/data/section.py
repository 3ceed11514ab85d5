"""The parts of a section of the report: sentences, tables, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a head; `folded` hides them until the reader asks."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture and the words for those who can't see it; `source` is an address that holds all of it (`data:`)."""

    words: str
    source: str


@dataclass(frozen=True, slots=True)
class Section:
    """A title, a sentence, tables, pictures."""

    title: str
    lede: str = ""
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
