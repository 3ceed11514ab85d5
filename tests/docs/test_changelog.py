"""The changelog is read at a glance: an entry is one line or two, and none of them is long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TEXT = (Path(__file__).resolve().parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
MOST_LINES, MOST_LETTERS = 2, 160


def entries(text: str) -> Iterator[list[str]]:
    """The lines of each entry; what is no heading and follows none belongs to the entry before it."""
    for part in re.split(r"^#.*\n|^(?=- )|^\n", text, flags=re.MULTILINE):
        if part.startswith(("-", " ")):
            yield part.splitlines()


def long_entries(text: str) -> list[list[str]]:
    return [each for each in entries(text) if len(each) > MOST_LINES or any(len(line) > MOST_LETTERS for line in each)]


def test_an_entry_has_one_line_or_two() -> None:
    assert len(list(entries(TEXT))) > 300
    assert long_entries(TEXT) == []


def test_what_is_too_long_is_found() -> None:
    long = ["- a\n  b\n  c\n", f"- {'word ' * 40}\n", "- a\n  b\nc\n"]
    text = "# Changes\n\n## 1.0\n\n- short\n- two\n  lines\n" + "".join(long) + "- short\n\n## 0.9\n\n- a\n  b\n  c\n"
    assert [each[0] for each in long_entries(text)] == ["- a", long[1].strip("\n"), "- a", "- a"]
