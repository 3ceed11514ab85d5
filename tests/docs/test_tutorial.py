"""Do what the tutorial and the page on own parts say: write files, run commands, compare what is printed."""

from __future__ import annotations

import fnmatch
import os
import re
import runpy
import subprocess
import sys
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


def check_console(text: str, folder: Path) -> None:
    for command, lines in shown(text):
        printed = run(command, folder).stdout
        for line in lines:
            assert matches(line, printed), f"`{command}` was to print\n{line}\nand printed\n{printed}"


def matches(line: str, printed: str) -> bool:
    """Whether a line of what was printed is `line`, in which three dots stand for anything."""
    pattern = "*".join(re.sub(r"([*?[])", r"[\1]", piece) for piece in line.split("..."))
    return any(fnmatch.fnmatchcase(got, pattern) for got in printed.splitlines())


def test_the_page_on_exploring(tmp_path: Path) -> None:
    page = blocks(ROOT / "docs" / "exploring.md")
    for block in page:
        if block.file and block.file != "block":
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "console":
            check_console(block.text, tmp_path)
    (defaults,) = (block.text for block in page if block.file == "block")
    scenario = netdfl.load(tmp_path / "explored.yaml")
    said = tmp_path / "said.yaml"
    said.write_text((tmp_path / "explored.yaml").read_text(encoding="utf-8") + defaults, encoding="utf-8")
    assert netdfl.load(said).explore == scenario.explore


def test_the_page_on_proving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = blocks(ROOT / "docs" / "prove.md")
    for block in page:
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        else:
            check_console(block.text, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="The smallest schedule, as a scenario"):
        runpy.run_path("test_gossip.py")["test_it_survives_any_single_loss"]()
    (tmp_path / "gossip.yaml").write_text((tmp_path / "gossip.yaml").read_text().replace("none", "20ms"))
    runpy.run_path("test_gossip.py")["test_it_survives_any_single_loss"]()


def test_the_page_on_blame(tmp_path: Path) -> None:
    for block in blocks(ROOT / "docs" / "blame.md"):
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        else:
            check_console(block.text, tmp_path)


COSTLY = ("netdfl sweep mine/clinics.yaml", "--set topology.kind=random_push")
"""Commands of the tutorial whose results its other blocks don't use: they are for `tests.soak.in_full`."""
IN_FULL = pytest.param("tutorial", True, marks=pytest.mark.soak, id="tutorial in full")


@pytest.mark.parametrize(
    ("name", "in_full"),
    [
        pytest.param("tutorial", False, id="tutorial"),
        IN_FULL,
        *(pytest.param(name, True, id=name) for name in ("own_parts", "own_algorithm", "replay")),
    ],
)
def test_every_block_of_the_page(name: str, in_full: bool, tmp_path: Path) -> None:
    page = blocks(ROOT / "docs" / f"{name}.md")
    if not in_full:
        costly = [block for block in page if any(words in block.text for words in COSTLY)]
        assert len(costly) == len(COSTLY)
        page = [block for block in page if block not in costly]
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
            check_console(block.text, tmp_path)
        else:
            pytest.fail(f"a block of {block.kind} without a file's name would never be run")
    assert {block.kind for block in page} == {"sh", "console", "yaml", "python"}
