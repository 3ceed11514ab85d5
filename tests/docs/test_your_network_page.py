"""What a measured network does to training: every command prints what the page shows."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from test_tutorial import ROOT, blocks, matches, shown
from typer.testing import CliRunner

from netdfl.cli.commands import make_app
from netdfl.explore.ends import EndingSettings

PAGE = ROOT / "docs" / "your_network.md"


def test_the_page_from_a_measurement_to_a_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs have no page here, and which settings would end the stall is not tried: the page shows neither."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("netdfl.explore.findings.find_ends", lambda *parts: EndingSettings())
    for block in blocks(PAGE):
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        for command, lines in shown(block.text):
            typed, _, line = command.rpartition(" | ")
            words = shlex.split(line)[1:]
            words += ["--no-page"] if words[0] == "run" and "--no-page" not in words else []
            printed = (
                CliRunner()
                .invoke(make_app(), words, input=f"{typed.removeprefix('echo ')}\n", env={"COLUMNS": "200"})
                .output
            )
            for line in lines:
                assert matches(line, printed), f"`{command}` was to print\n{line}\nand printed\n{printed}"
