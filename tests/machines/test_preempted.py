"""A job of a real Slurm cluster whose machines are taken away, that is queued again, and goes on where it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import netdfl
from netdfl.testing.world_bench import rounds_of
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


def test_a_job_that_is_queued_again_goes_on_where_it_was(cluster: Cluster, tmp_path: Path) -> None:
    """What `netdfl sbatch` writes, and `scontrol requeue`. Its disk is that of the machine where the script runs."""
    file, first = cluster.folder / "preempted.yaml", cluster.machines.names[0]  # /tmp is another on each machine
    file.write_text(json.dumps(SCENARIO), encoding="utf-8")
    writing = [sys.executable, "-m", "netdfl", "sbatch", str(file), "--machines", "2", "--option=--chdir=/tmp"]
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    wrote = subprocess.run(writing, cwd="/tmp", env=os.environ | paths, check=True, capture_output=True, text=True)
    environment = cluster.environment | paths | {"TMPDIR": "/tmp"}
    said = subprocess.run(
        ["sbatch", "--parsable"], input=wrote.stdout, env=environment, check=True, capture_output=True, text=True
    )
    job = said.stdout.strip()
    path, log = cluster.sees(first, f"/tmp/runs/preempted-{job}"), cluster.sees(first, f"/tmp/preempted-{job}.log")
    words = lambda: log.read_text(encoding="utf-8") if log.exists() else "no log"  # noqa: E731
    until(lambda: min(rounds_of(path), default=0) > 20, words)
    cluster.call("scontrol", "requeue", job)
    until(lambda: cluster.call("squeue", "--noheader", "--format=%T").strip() != "RUNNING", words)
    until(lambda: not cluster.call("squeue", "--noheader").strip(), words)
    kept = shutil.copytree(path, tmp_path / "run")
    ended = netdfl.open_run(kept).result
    (once,) = ended["resumed"]
    assert ended["verdict"] == "done", ended["reasons"]
    assert min(once["rounds"].values()) > 20
    assert once["doubt"] == ""
