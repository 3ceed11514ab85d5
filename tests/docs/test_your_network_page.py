"""What a measured network does to training: every command prints what the page shows."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from test_tutorial import ROOT, blocks, matches, shown
from typer.testing import CliRunner

from netdfl.cli.commands import make_app

PAGE = ROOT / "docs" / "your_network.md"


def test_the_page_from_a_measurement_to_a_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(PAGE):
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        for command, lines in shown(block.text):
            typed, _, line = command.rpartition(" | ")
            words = shlex.split(line)[1:]
            printed = (
                CliRunner()
                .invoke(make_app(), words, input=f"{typed.removeprefix('echo ')}\n", env={"COLUMNS": "200"})
                .output
            )
            for line in lines:
                assert matches(line, printed), f"`{command}` was to print\n{line}\nand printed\n{printed}"
