"""What goes wrong around a fleet: a killed node, Ctrl-C, a dead launcher, a full disk."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.soak import kill_a_node

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def long_run(out: Path) -> Iterator[subprocess.Popen[str]]:
    """A quickstart fleet with far too many rounds, under way."""
    sets = ["--set=rounds=100000", "--set=nodes=4", "--set=topology.neighbors=2", "--set=evaluation.every=1000"]
    command = [sys.executable, "-m", "netdfl.cli", "run", str(ROOT / "scenarios/quickstart.yaml"), f"--out={out}"]
    run = subprocess.Popen([*command, *sets], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        while run.poll() is None and not any(n["round"] > 2 for n in nodes_of(out)):
            time.sleep(0.05)
        yield run
    finally:
        run.kill()
        run.communicate()


def nodes_of(out: Path) -> list[dict]:
    path = out / "fleet.json"
    return json.loads(path.read_text())["nodes"] if path.exists() else []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pids: list[int]) -> list[int]:
    for _ in range(200):
        if not (left := [pid for pid in pids if alive(pid)]):
            break
        time.sleep(0.05)
    return left


@pytest.mark.parametrize("number", [0, 1], ids=["oracle", "no detector"])
def test_a_killed_node_is_named_and_the_rest_finish(number: int) -> None:
    assert kill_a_node.trial(random.Random(number), number) is None


def test_ctrl_c_keeps_what_was_recorded(tmp_path: Path) -> None:
    with long_run(tmp_path / "run") as run:
        pids = [node["pid"] for node in nodes_of(tmp_path / "run")]
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "Traceback" not in said
    assert wait_until_gone(pids) == []
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert (result["verdict"], result["reasons"][0]) == ("unknown", "the run was interrupted")
    assert result["messages"]["delivered"] > 0
    assert "the run was interrupted" in (tmp_path / "run/report.html").read_text()


def test_a_dead_launcher_leaves_no_orphans(tmp_path: Path) -> None:
    with long_run(tmp_path / "run") as run:
        pids = [node["pid"] for node in nodes_of(tmp_path / "run")]
        assert all(alive(pid) for pid in pids)
        os.kill(run.pid, signal.SIGKILL)
        run.wait(10)
        assert wait_until_gone(pids) == []


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounting a small disk needs root on Linux")
def test_a_full_disk_ends_the_run_with_exit_4(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk], check=False).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    try:
        command = [
            sys.executable,
            "-m",
            "netdfl.cli",
            "run",
            str(ROOT / "scenarios/quickstart.yaml"),
            f"--out={disk}/run",
        ]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        kept = sum(path.stat().st_size for path in (disk / "run/store").iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)
    assert run.returncode == 4, run.stdout + run.stderr
    assert "No space left on device" in run.stdout + run.stderr
    assert "Traceback" not in run.stdout + run.stderr
    assert kept > 0
