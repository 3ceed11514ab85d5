"""The example of docs/bad_input.md runs as the page says: nodes fall by their own NaN, and the run passes."""

from __future__ import annotations

import re
from pathlib import Path

import netdfl
from netdfl.record.judge import WELL
from netdfl.scenario.load import loads

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "bad_input.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_example_passes_because_it_expects_nan(tmp_path: Path) -> None:
    result = netdfl.run(loads(EXAMPLE), out=tmp_path / "run", page=False).result
    assert result["verdict"] in WELL, result["reasons"]
    assert len(result["died"]) == 4
    assert all("local step" in death["reason"] for death in result["died"])


def test_without_that_it_fails_and_names_node_and_step(tmp_path: Path) -> None:
    result = netdfl.run(loads(EXAMPLE, ["expect.not_finite=none"]), out=tmp_path / "run", page=False).result
    assert result["verdict"] == "fail"
    assert "node 0 died in round 0: training error: local step" in " ".join(result["reasons"])
