"""A job of a real Slurm cluster that is taken its machines, queued again, and goes on where it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import netdfl
from tests.machines.separated import Separated
from tests.machines.slurm_cluster import Cluster, missing

pytestmark = [pytest.mark.soak, pytest.mark.skipif(bool(missing()), reason=missing() or "it is here")]
SCENARIO = {
    "schema": "netdfl/1",
    "name": "preempted",
    "nodes": 4,
    "rounds": 150,
    "task": {"kind": "consensus", "dim": 10},
    "algorithm": "dpsgd",
    "topology": "full",
    "links": {"default": {"latency": "30ms"}},
    "delivery": {"kind": "acknowledged", "timeout": "300ms"},
    "checkpoint": {"every": 1},
    "evaluation": {"every": 1000},
    "wait": {"deadline": "none"},
    "world": {"fidelity": {"relative": 100, "slack": "100s"}},
}
PATIENCE_S = 180


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Separated(2) as machines, Cluster(machines) as cluster:
        yield cluster


def until(holds: Callable[[], bool], said: Callable[[], str]) -> None:
    since = time.monotonic()
    while not holds():
        assert time.monotonic() < since + PATIENCE_S, said()
        time.sleep(0.2)


def test_a_run_that_gets_a_sigterm_and_is_resumed_goes_on_from_what_was_carried(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its script's machine has no disk to write to here, so the supervisor runs in an allocation of salloc, twice."""
    file, path = tmp_path / "preempted.yaml", tmp_path / "run"
    file.write_text(json.dumps(SCENARIO), encoding="utf-8")
    netdfl_ = [sys.executable, "-m", "netdfl", "run"]
    through = ["salloc", "--quiet", "--nodes=2"]
    first = subprocess.Popen(
        [*through, *netdfl_, str(file), "--on", "slurm", "--no-page", "--out", str(path)], env=cluster.environment
    )
    fleet = path / "fleet.json"
    until(
        lambda: fleet.exists() and all((each["round"] or 0) > 20 for each in json.loads(fleet.read_text())["nodes"]),
        lambda: str(first.poll()),
    )
    cluster.call("scancel", "--signal=TERM", "--full", cluster.call("squeue", "-h", "-o", "%i").strip())
    child = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text(encoding="ascii").split()[0]
    os.kill(int(child), 15)
    first.wait(PATIENCE_S)
    stopped = netdfl.open_run(path).result
    assert stopped["verdict"] == "unknown", stopped["reasons"]
    assert stopped["died"] == []
    assert len(list((path / "checkpoints").glob("*.safetensors"))) == 4
    resumed = subprocess.run(
        [*through, *netdfl_, "--resume", str(path), "--no-page"],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    found = netdfl.open_run(path).result
    (once,) = found["resumed"]
    assert min(once["rounds"].values()) > 20
    assert once["doubt"] == ""
