"""The parts of a section of the report: sentences, tables, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a report with column heads; `folded` hides the rows until the reader opens them."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a report: `source` is its data URL, `words` the text in place of it."""

    words: str
    source: str


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the report: a title, an introductory sentence (`lede`), tables, pictures."""

    title: str
    lede: str = ""
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
