"""The diagnosis of real processes: planted stalls are named, healthy fleets are left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from stall_terms import BASE
from truths import TRUTHS, Truth

import netdfl
from netdfl.record.judge import WELL, ExitCode
from netdfl.record.run import open_run
from tests.warm import warm_python

FAULTS = Path(__file__).resolve().parents[2] / "scenarios" / "faults"


def run(file: Path, out: Path, *sets: str) -> dict[str, Any]:
    busy = "world.fidelity={relative: 100, slack: 100s}"
    return netdfl.run(netdfl.load(file, [*sets, busy], on="processes"), out=out, page=False).result


def causes(result: dict[str, Any]) -> list[tuple[str, list[int], list[int]]]:
    found = [*result["deadlocks"], *result["stalls"]]
    return [(f["cause"], f["roots"], f["culprits"]) for f in found if not f["over"]]


IN_PROCESSES = (
    "quick heartbeats, dead both ways",
    "a client's broadcast lost, a quorum",
    "running sums, a message lost",
)


@pytest.mark.parametrize("truth", [each for each in TRUTHS if each.name in IN_PROCESSES], ids=lambda each: each.name)
def test_what_is_true_of_a_simulated_fleet_is_true_of_processes(truth: Truth, tmp_path: Path) -> None:
    (tmp_path / "truth.yaml").write_text(json.dumps(BASE | dict(truth.keys) | {"world": {"kind": "processes"}}))
    result = run(tmp_path / "truth.yaml", tmp_path / "run")
    assert causes(result) == [(held.cause, list(held.roots), list(held.culprits)) for held in truth.held]
    assert (result["verdict"] != "fail") == (not truth.held), result["reasons"]


def test_what_was_lost_is_sent_again(tmp_path: Path) -> None:
    result = run(FAULTS / "resend.yaml", tmp_path / "run")
    assert causes(result) == []
    assert result["verdict"] in WELL, result["reasons"]


def begin(out: Path, *sets: str) -> subprocess.Popen[bytes]:
    """A fleet of six that would go on for very long."""
    long = ["rounds=1000000", "wait.for=all", "events=[]", "world.fidelity={relative: 100, slack: 100s}", *sets]
    overrides = [part for each in long for part in ("--set", each)]
    file = str(FAULTS / "quorum_survives.yaml")
    command = [warm_python(), "-m", "netdfl.cli", "run", file, "--on", "processes", "--out", str(out), *overrides]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_process_that_never_goes_on_is_a_blocked_loop_and_ends_the_run(tmp_path: Path) -> None:
    """Stop node 2 as a debugger would; its neighbors wait for it, and the supervisor gets no answer any more."""
    out = tmp_path / "run"
    with begin(out, "world.stopped_after=3s") as running:
        os.kill(_until(lambda: _pid_in_round(out, node=2, round=20)), signal.SIGSTOP)
        assert running.wait() == ExitCode.FAIL
    result = json.loads((out / "result.json").read_text())
    assert causes(result) == [("blocked_loop", [1, 3], [2])]
    (behind, *_) = result["time"]["behind"]
    assert (behind["node"], behind["why"]) == (2, "silent")
    assert "answered no more" in result["time"]["text"]


def test_nodes_whose_supervisor_is_killed_write_down_what_they_know(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with begin(out) as running:
        pids = [_until(lambda node=node: _pid_in_round(out, node, round=20)) for node in range(6)]
        os.kill(pids[3], signal.SIGSTOP)  # as a busy machine does, for longer than a moment
        running.kill()
        time.sleep(3)
        os.kill(pids[3], signal.SIGCONT)
    _until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids) or None)
    left = open_run(out).rows("SELECT DISTINCT node FROM events WHERE kind = 'fidelity' ORDER BY node")
    assert left == [(node,) for node in range(6)]


T = TypeVar("T")


def _until(look: Callable[[], T | None]) -> T:
    while (found := look()) is None:
        time.sleep(0.1)
    return found


def _pid_in_round(out: Path, node: int, round: int) -> int | None:
    path = out / "fleet.json"
    nodes = json.loads(path.read_text())["nodes"] if path.exists() else []
    return next((int(n["pid"]) for n in nodes if n["node"] == node and n["round"] >= round), None)
