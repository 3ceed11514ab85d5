"""The diagnosis of real processes: planted stalls are named, healthy fleets are left alone."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FAULTS = Path(__file__).resolve().parents[2] / "scenarios" / "faults"


def run(file: Path, out: Path, *sets: str) -> dict[str, Any]:
    overrides = [part for each in sets for part in ("--set", each)]
    command = [sys.executable, "-m", "netdfl.cli", "run", str(file), "--on", "processes", "--out", str(out), *overrides]
    done = subprocess.run(command, text=True, capture_output=True)
    assert (out / "result.json").exists(), done.stdout + done.stderr
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    return result


def causes(result: dict[str, Any]) -> list[tuple[str, list[int], list[int]]]:
    found = [*result["deadlocks"], *result["stalls"]]
    return [(f["cause"], f["roots"], f["culprits"]) for f in found if not f["over"]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rendezvous_ring", ("deadlock", list(range(8)), list(range(8)))),
        ("lost_message", ("lost_message", [3], [2])),
        ("crash", ("unreachable", [3, 5], [4])),
    ],
)
def test_a_planted_stall_is_named(name: str, expected: tuple[str, list[int], list[int]], tmp_path: Path) -> None:
    result = run(FAULTS / f"{name}.yaml", tmp_path / "run")
    assert causes(result) == [expected]
    assert result["verdict"] == "pass", result["reasons"]
    kept = json.loads((tmp_path / "run" / "stalls" / "000.json").read_text())
    assert "waits.py" in kept["nodes"][expected[1][0]]["stack"]


def test_what_was_lost_is_sent_again(tmp_path: Path) -> None:
    result = run(FAULTS / "resend.yaml", tmp_path / "run")
    assert causes(result) == []
    assert result["verdict"] == "pass", result["reasons"]


@pytest.mark.soak
def test_two_hundred_healthy_runs_have_no_deadlock(tmp_path: Path) -> None:
    draw = random.Random(1)
    for number in range(200):
        sets = [f"seed={number}", f"nodes={draw.randint(3, 8)}", f"rounds={draw.randint(5, 60)}", "expect={}"]
        file = FAULTS / draw.choice(["quorum_survives.yaml", "message_on_its_way.yaml"])
        result = run(file, tmp_path / str(number), *sets, "events=[]")
        assert result["deadlocks"] == [], result
        assert [f for f in result["stalls"] if f["permanent"]] == [], result
