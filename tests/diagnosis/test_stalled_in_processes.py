"""Real processes are told the same of their stalls as the simulated world is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stall_terms import BASE, says
from stalled import STALLED

from netdfl.running.run import run
from netdfl.scenario.load import loads


@pytest.mark.parametrize("name", ["crash, pause and loss", "crash before it sends, back in a later round"])
def test_real_processes_are_told_the_same(name: str, tmp_path: Path) -> None:
    case = next(each for each in STALLED if each.name == name)
    world = {"world": {"kind": "processes", "fidelity": {"relative": 100, "slack": "100s"}}}
    result = run(loads(json.dumps(BASE | dict(case.keys) | world)), out=tmp_path / "run", page=False).result
    found = [each for each in (*result["deadlocks"], *result["stalls"]) if not each["over"]]
    for one, stall in zip(found, case.stalls, strict=True):
        assert (one["cause"], one["roots"], one["culprits"]) == (stall.cause, [*stall.roots], [*stall.culprits])
        assert says(one["text"], stall.says), one["text"]
        assert one["remedies"] == list(stall.remedies)
