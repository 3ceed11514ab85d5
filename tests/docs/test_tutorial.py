"""Do what the tutorial and the page on own parts say: write files, run commands, compare what is printed."""

from __future__ import annotations

import fnmatch
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import netdfl
from tests.warm import warm_python

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\S+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    kind: str
    file: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(page.read_text(encoding="utf-8"))]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(warm_python()).parent}:{os.environ['PATH']}", "COLUMNS": "200"}
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def shown(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it is shown to print."""
    commands = [part.splitlines() for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
    return [(command, lines) for command, *lines in commands]


def check_console(text: str, folder: Path, left_out: Sequence[str] = ()) -> None:
    """Type the commands of a console block, but for those with the words `left_out`."""
    for command, lines in shown(text):
        if any(words in command for words in left_out):
            continue
        printed = run(command, folder).stdout
        for line in lines:
            assert matches(line, printed), f"`{command}` was to print\n{line}\nand printed\n{printed}"


def matches(line: str, printed: str) -> bool:
    """Whether a line of what was printed is `line`, in which three dots stand for anything."""
    pattern = "*".join(re.sub(r"([*?[])", r"[\1]", piece) for piece in line.split("..."))
    return any(fnmatch.fnmatchcase(got, pattern) for got in printed.splitlines())


COSTLY = {
    "tutorial": (
        *("netdfl sweep mine/clinics.yaml", "--set topology.kind=random_push"),
        "prox:DFEDPROX --set algorithm.mu=0.1",
    ),
    "exploring": ("late:two_late",),
    "prove": ('"loss: 2"', "--set algorithm=sgp --set wait.deadline=20ms"),
    "blame": ("--target 'consensus: 0.3'",),
    "own_parts": ("walks:shuffled_ring", "--out runs/rounding"),
}
"""By page, words of commands whose results its other blocks don't use: they are for `tests.soak.in_full`."""
QUICKER = {"netdfl run mine/clinics.yaml": "netdfl run mine/clinics.yaml --on simulated --no-page", "runs=20": "runs=5"}
"""What the tutorial does beside that without processes, and less often."""
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


def in_full_too(*names: str) -> pytest.MarkDecorator:
    """Each page twice: without what is costly, and, for the soak, as it stands."""
    short = [pytest.param(name, False, id=name) for name in names]
    longer = [name for name in names if name in COSTLY]
    return pytest.mark.parametrize(
        ("name", "in_full"),
        [*short, *(pytest.param(name, True, marks=pytest.mark.soak, id=f"{name} in full") for name in longer)],
    )


def costly(name: str, in_full: bool) -> Sequence[str]:
    """The words of what is left out of a page."""
    found = COSTLY.get(name, ())
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert [words for words in found if text.count(words) != 1] == []
    return () if in_full else found


def quicker(text: str) -> str:
    for words, others in QUICKER.items():
        assert words in TUTORIAL
        text = text.replace(words, others)
    return text


@pytest.mark.soak  # tests/explore has what these commands do
@in_full_too("exploring")
def test_the_page_on_exploring(name: str, in_full: bool, tmp_path: Path) -> None:
    page = blocks(ROOT / "docs" / "exploring.md")
    for block in page:
        if block.file and block.file != "block":
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "console":
            check_console(block.text, tmp_path, costly(name, in_full))
    (defaults,) = (block.text for block in page if block.file == "block")
    scenario = netdfl.load(tmp_path / "explored.yaml")
    said = tmp_path / "said.yaml"
    said.write_text((tmp_path / "explored.yaml").read_text(encoding="utf-8") + defaults, encoding="utf-8")
    assert netdfl.load(said).explore == scenario.explore


@in_full_too("prove")
def test_the_page_on_proving(name: str, in_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = blocks(ROOT / "docs" / "prove.md")
    for block in page:
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        else:
            check_console(block.text, tmp_path, costly(name, in_full))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="The smallest schedule, as a scenario"):
        runpy.run_path("test_gossip.py")["test_it_survives_any_single_loss"]()
    (tmp_path / "gossip.yaml").write_text((tmp_path / "gossip.yaml").read_text().replace("none", "20ms"))
    runpy.run_path("test_gossip.py")["test_it_survives_any_single_loss"]()


@pytest.mark.soak  # tests/blame has what these commands do
@in_full_too("blame")
def test_the_page_on_blame(name: str, in_full: bool, tmp_path: Path) -> None:
    for block in blocks(ROOT / "docs" / "blame.md"):
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        else:
            check_console(block.text, tmp_path, costly(name, in_full))


@in_full_too("tutorial", "own_parts", "own_algorithm", "replay")
def test_every_block_of_the_page(name: str, in_full: bool, tmp_path: Path) -> None:
    page = blocks(ROOT / "docs" / f"{name}.md")
    left_out = costly(name, in_full)
    if not in_full:
        page = [block for block in page if block.kind != "sh" or not any(words in block.text for words in left_out)]
    if name == "tutorial" and not in_full:
        page = [block._replace(text=quicker(block.text)) for block in page]
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for block in page:
        if block.file:
            target = tmp_path / block.file
            target.parent.mkdir(exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.kind == "sh":
            done = run(f"set -e\n{block.text}", tmp_path)
            assert done.returncode == 0, f"{block.text} ended with {done.returncode}:\n{done.stdout}"
        elif block.kind == "console":
            check_console(block.text, tmp_path, left_out)
        else:
            pytest.fail(f"a block of {block.kind} without a file's name would never be run")
    assert {block.kind for block in page} == {"sh", "console", "yaml", "python"}
