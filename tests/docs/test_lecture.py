"""The lecture: every command prints what the page shows, and all of its scenarios are shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from test_tutorial import ROOT, blocks, matches, shown
from typer.testing import CliRunner

from netdfl.cli.commands import make_app

PAGE = ROOT / "docs" / "lecture.md"
COMMANDS = [each for block in blocks(PAGE) for each in shown(block.text)]


@pytest.mark.parametrize(("command", "lines"), COMMANDS, ids=[command[:70] for command, _ in COMMANDS])
def test_the_command_prints_what_the_page_shows(
    command: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = CliRunner().invoke(make_app(), shlex.split(command)[1:], env={"COLUMNS": "200"}).output
    for line in lines:
        assert matches(line, printed), f"`{command}` was to print\n{line}\nand printed\n{printed}"


def test_every_scenario_of_the_lecture_is_in_it() -> None:
    shipped = {f"lecture/{file.stem}" for file in (ROOT / "scenarios" / "lecture").glob("*.yaml")}
    assert shipped == set(re.findall(r"lecture/\w+", "\n".join(command for command, _ in COMMANDS)))
