"""Every scenario of scenarios/found shows what its comment says, bit for bit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import netdfl

FOUND = sorted((Path(__file__).resolve().parents[2] / "scenarios" / "found").glob("*.yaml"))


@pytest.mark.parametrize("file", FOUND, ids=[file.stem for file in FOUND])
def test_it_shows_what_was_found(file: Path, tmp_path: Path) -> None:
    text = file.read_text(encoding="utf-8")
    result = netdfl.run(file, out=tmp_path / "run", page=False).result
    assert result["verdict"] == "pass", result["reasons"]
    assert f"# Event log: {result['event_log_hash']}\n" in text
    comment = re.sub(r"\n# ", " ", text.partition("# Found in")[0])
    told = [each["text"] for each in (*result["stalls"], *result["deadlocks"], *result["warnings"])]
    assert any(each.partition(". Since")[0] in comment for each in told)
