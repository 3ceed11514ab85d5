"""Every example of docs/compression.md runs and keeps what it expects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import netdfl
from netdfl.record.judge import WELL
from netdfl.scenario.load import loads

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "compression.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml ?(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
BASE = next(body for name, body in BLOCKS if name == "base")
EXAMPLES = [body for name, body in BLOCKS if not name]
ALIKE = ("weight_sum", "name: scaffold")
"""Words of examples like another one: push-sum that loses nothing, a second method with a server."""


@pytest.mark.parametrize(
    "example",
    [pytest.param(body, marks=[pytest.mark.soak] if any(each in body for each in ALIKE) else []) for body in EXAMPLES],
    ids=[body.split("\n")[0][:60] for body in EXAMPLES],
)
def test_the_example_runs(example: str, tmp_path: Path) -> None:
    own = {line.split(":")[0] for line in example.splitlines()}
    base = "".join(line for line in BASE.splitlines(keepends=True) if line.split(":")[0] not in own)
    finished = netdfl.run(loads(base + example), out=tmp_path / "run", page=False)
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    assert finished.result["messages"]["delivered"] > 100
