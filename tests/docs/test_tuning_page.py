"""The page on deadlines and quorums: every command prints what the page shows."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from test_tutorial import ROOT, blocks, matches, shown
from typer.testing import CliRunner

from netdfl.cli.commands import make_app
from netdfl.study.runners.catalog import RUNNERS
from tests.in_process import InProcess

PAGE = ROOT / "docs" / "tuning.md"


@pytest.mark.soak
def test_the_page_finds_a_deadline_and_a_quorum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(RUNNERS, "local", InProcess)  # type: ignore[arg-type]
    for drawer in ("tuning.tune.draw_curve", "plots.draw"):
        monkeypatch.setattr(f"netdfl.study.{drawer}", lambda *drawn: None)
    for block in blocks(PAGE):
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        for command, lines in shown(block.text):
            printed = CliRunner().invoke(make_app(), shlex.split(command)[1:], env={"COLUMNS": "200"}).output
            for line in lines:
                assert matches(line, printed), f"`{command}` was to print\n{line}\nand printed\n{printed}"
