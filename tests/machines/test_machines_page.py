"""What docs/machines.md says to call, called on clusters of separated machines; sites by features and resources."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.testing.world_ends import NUMBERS, QUICKSTART, kept_models
from tests.machines import ray_cluster, slurm_cluster
from tests.machines.separated import Separated

pytestmark = pytest.mark.soak  # clusters, and a fleet for each command
PAGE = Path(__file__).parents[2] / "docs" / "machines.md"
CLUSTERS = {"slurm": slurm_cluster, "ray": ray_cluster}
SITES = [{"nodes": [0, 3], "machines": "place-2"}]


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    kind = CLUSTERS[request.param]
    if reason := kind.missing():
        pytest.skip(reason)
    with Separated(3) as machines, kind.Cluster(machines) as cluster:
        cluster.kind = request.param
        yield cluster


def commands(kind: str, what: str) -> list[str]:
    """The page's commands of an engine that do so."""
    lines = [line.strip().partition(" #")[0] for line in PAGE.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if f"netdfl {what}" in line and f"--on {kind}" in line and "ray job" not in line]


def call(cluster: Any, command: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Call it in `folder`, on this cluster's machines instead of the page's."""
    words = command.replace("--nodes=4", "--nodes=3").split()
    words = [f"world.address={cluster.address}" if word.startswith("world.address=") else word for word in words]
    at = words.index("netdfl")
    words[at : at + 1] = [sys.executable, "-m", "netdfl"]
    environment = getattr(cluster, "environment", dict(os.environ))
    return subprocess.run(
        [*words, *more], cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


def test_a_run_and_what_is_made_of_it(cluster: Any, tmp_path: Path) -> None:
    fidelity = {"relative": 100, "slack": "100s"}
    scenario = {"schema": "netdfl/1", "name": "quickstart", **QUICKSTART}
    kept = {"world": {"kind": cluster.kind, "fidelity": fidelity, "sites": SITES}}
    (tmp_path / "scenario.yaml").write_text(json.dumps(scenario | kept), encoding="utf-8")
    (command,) = commands(cluster.kind, "run")
    command = command if "scenario.yaml" in command else command.replace("netdfl run", "netdfl run scenario.yaml")
    done = call(cluster, command, tmp_path, "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    ours = netdfl.open_run(tmp_path / "run")
    theirs = netdfl.run(scenario | {"world": {"kind": "simulated"}}, out=tmp_path / "simulated", page=False)
    assert ours.rows(NUMBERS) == theirs.run.rows(NUMBERS)
    assert kept_models(ours.path) == kept_models(tmp_path / "simulated")
    assert sorted(ours.result["links"]["machines"].values()) == [[0, 3], [1], [2]]
    assert "The network between machines" in (ours.path / "report.html").read_text(encoding="utf-8")
    for local in ("netdfl report run", "netdfl export run metrics --format csv --out metrics.csv"):
        made = call(cluster, local, tmp_path)
        assert made.returncode == 0, made.stdout + made.stderr
    assert (tmp_path / "metrics.csv").stat().st_size > 1000


def test_the_doctor_looks_at_every_machine(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(json.dumps({"schema": "netdfl/1", "name": "q", **QUICKSTART}))
    (command,) = commands(cluster.kind, "doctor")
    done = call(cluster, command, tmp_path, "--format=json")
    found = json.loads(done.stdout)
    assert len(found["facts"]) == 4, done.stdout + done.stderr
    assert len(found["ways"]) >= 6
    assert [each for each in found["findings"] if each["what"] == "network" and each["state"] == "fail"] == []


def test_a_run_as_a_job(cluster: Any, tmp_path: Path) -> None:
    """It runs in a copy of the working directory, and finds the cluster by itself."""
    if cluster.kind == "slurm" or not cluster.jobs:
        pytest.skip(ray_cluster.no_jobs() or "Slurm's jobs are scripts")
    work, out = tmp_path / "work", tmp_path / "run"
    work.mkdir()
    scenario = {"schema": "netdfl/1", "name": "quickstart", **QUICKSTART}
    world = {"kind": "ray", "fidelity": {"relative": 100, "slack": "100s"}}
    (work / "scenario.yaml").write_text(json.dumps(scenario | {"world": world}), encoding="utf-8")
    (line,) = (line for line in PAGE.read_text(encoding="utf-8").splitlines() if "ray job submit" in line)
    words = [str(out) if word.startswith("/") else word for word in line.split()]
    at = words.index("netdfl")
    words[at : at + 1] = [sys.executable, "-m", "netdfl"]
    submit = [*ray_cluster.RAY, *words[1:]]
    environment = os.environ | {"RAY_ADDRESS": cluster.jobs}
    done = subprocess.run(submit, cwd=work, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    theirs = netdfl.run(scenario | {"world": {"kind": "simulated"}}, out=tmp_path / "simulated", page=False)
    ours = netdfl.open_run(out)
    assert ours.rows(NUMBERS) == theirs.run.rows(NUMBERS)
    assert sorted(ours.result["links"]["machines"].values()) == [[0, 1], [2], [3]]
