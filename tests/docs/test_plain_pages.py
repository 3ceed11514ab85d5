"""Pages are read by strangers: sentences of at most forty words, and no commit of this repository but as evidence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST = 40
WRITTEN = ("extend.md", "reproduction/")
"""Pages that a command writes: from docstrings, or from runs."""
LOG = "performance_log.md"
"""What was measured when, by which code: there a commit is a fact. Elsewhere only rows of tables name one."""
PLACES = {str(page.relative_to(ROOT / "docs")): page for page in sorted((ROOT / "docs").rglob("*.md"))}
PAGES = [ROOT / "README.md", *(page for place, page in PLACES.items() if not place.startswith(WRITTEN))]
COMMIT = re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_is_longer_than_forty_words(page: Path) -> None:
    long = [sentence for sentence in sentences(page.read_text(encoding="utf-8")) if len(words(sentence)) > MOST]
    assert long == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != LOG], ids=lambda page: page.name)
def test_a_page_names_no_commit_but_as_evidence_in_a_table(page: Path) -> None:
    assert commits(page.read_text(encoding="utf-8")) == []


def test_pages_of_folders_are_among_them() -> None:
    assert {"proofs.md", "fidelity.md", "reproduction.md", LOG} <= {page.name for page in PAGES}


def test_what_is_too_long_is_found() -> None:
    short, long = " ".join(["A", *["word"] * 38, "end."]), " ".join(["A", *["word"] * 39, "end."])
    page = f"# A title\n\n{short} {long}\n\n- {short}\n- {long}\n\n| {short} | {long} |\n\n```sh\n{long}\n```\n"
    assert [len(words(each)) for each in sentences(page)].count(41) == 3
    assert commits("the code of 1340c4e9, a decade 2020, an effaced word, 0x12\n| 1340c4e | a |\n") == ["1340c4e9"]


def sentences(page: str) -> Iterator[str]:
    """The sentences of a page's paragraphs, list items and cells; no code."""
    for block in blocks(prose(page)):
        yield from re.split(r"(?<=[.!?])\s+(?=[\"'(*`\[]*(?:[A-Z0-9`]|netdfl|gRPC))", block)


def commits(page: str) -> list[str]:
    """The commits that a page names outside of its programs and tables."""
    return COMMIT.findall(re.sub(r"^\|.*$", "", prose(page), flags=re.MULTILINE))


def words(sentence: str) -> list[str]:
    """What is read as a word: a link counts by its text, code as one word."""
    plain = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", sentence))
    return [word for word in plain.split() if re.search(r"\w", word)]


def prose(page: str) -> str:
    """A page without its programs, commands and comments."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r"(?:^ {4}.*\n)+", lambda found: found[0] if _is_list(found[0]) else "\n", text, flags=re.MULTILINE)


def _is_list(text: str) -> bool:
    return text.lstrip().startswith(("- ", "* "))


def blocks(text: str) -> Iterator[str]:
    """Paragraphs, headings, list items, and cells of tables, each on one line."""
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        begins = re.match(r"\s*(?:[-*]|\d+\.)\s|#|\|", line)
        if block and (begins or not line.strip()):
            yield " ".join(block)
            block = []
        if line.startswith("|"):
            yield from (cell.strip() for cell in line.strip("|").split("|"))
        elif line.strip():
            block.append(re.sub(r"^\s*(?:[-*]|\d+\.)\s", "", line).strip())
