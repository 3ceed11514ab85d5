"""Fleets on the machines of a Slurm allocation."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import netdfl
from netdfl.core.errors import MachineError
from netdfl.exports.export import export_table as export
from netdfl.report.html import write_report
from netdfl.testing.world_ends import NUMBERS, QUICKSTART, kept_models
from tests.hostile.client import STRANGERS
from tests.machines.on_cluster import attacked, core_link_is_shared, vanished_is_named
from tests.machines.separated import Separated
from tests.machines.slurm_cluster import Cluster, missing
from tests.warm import warm_python

REAL = {"fidelity": {"relative": 100, "slack": "100s"}}
SCENARIO = {"schema": "netdfl/1", "name": "quickstart", **QUICKSTART}
needs_slurm = pytest.mark.skipif(bool(missing()), reason=missing() or "it is here")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Of machines that have addresses of IPv6 alone; the tests that take long have some of IPv4."""
    with Separated(3, six=True) as machines, Cluster(machines) as cluster:
        yield cluster


@needs_slurm
def test_within_an_allocation_the_numbers_are_those_of_every_world(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "quickstart.yaml"
    file.write_text(json.dumps(SCENARIO | {"world": {"kind": "slurm", **REAL}}), encoding="utf-8")
    run = [warm_python(), "-m", "netdfl", "run", str(file), "--no-page", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        ["salloc", "--quiet", "--nodes=3", *run], env=cluster.environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    ours = netdfl.open_run(tmp_path / "run")
    theirs = netdfl.run(SCENARIO | {"world": {"kind": "simulated"}}, out=tmp_path / "simulated", page=False)
    assert ours.rows(NUMBERS) == theirs.run.rows(NUMBERS)
    assert kept_models(tmp_path / "run") == kept_models(tmp_path / "simulated")
    assert "The network between machines" in write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert export(ours, "metrics", "csv", tmp_path / "metrics.csv").stat().st_size > 1000
    assert list(ours.result["links"]["machines"].items()) == [
        (name, nodes) for name, nodes in zip(cluster.machines.names, ([0, 1], [2], [3]), strict=True)
    ]


@needs_slurm
def test_a_machine_that_vanishes_is_named_before_slurm_says_anything(cluster: Cluster, tmp_path: Path) -> None:
    vanished_is_named(cluster, tmp_path)


@needs_slurm
@pytest.mark.soak  # test_suite_on_machines.py has it without Slurm
def test_messages_between_machines_share_a_core_link(cluster: Cluster, tmp_path: Path) -> None:
    core_link_is_shared(cluster, tmp_path)


@needs_slurm
@pytest.mark.parametrize("tls", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["plain text", "TLS"])
def test_strangers_change_nothing_and_learn_nothing(cluster: Cluster, tls: bool, tmp_path: Path) -> None:
    attacked(cluster, tmp_path / "run", "gossip", *STRANGERS, tls=tls)


@needs_slurm
def test_slurm_takes_the_script(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "quickstart.yaml"
    file.write_text(json.dumps(SCENARIO), encoding="utf-8")
    netdfl_sbatch = [sys.executable, "-m", "netdfl", "sbatch", str(file), "--machines", "2"]
    script = subprocess.run([*netdfl_sbatch, "--option=--time=10"], check=True, capture_output=True, text=True).stdout
    assert "#SBATCH --time=10\n" in script
    tested = subprocess.run(
        ["sbatch", "--test-only"], input=script, env=cluster.environment, capture_output=True, text=True, timeout=60
    )
    assert tested.returncode == 0, tested.stderr
    assert f"on nodes {cluster.machines.name}-[0-1]" in tested.stderr


def test_outside_of_an_allocation_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    with pytest.raises(MachineError, match="no Slurm allocation; run it within one, `salloc --nodes 2 netdfl run"):
        netdfl.run(SCENARIO | {"world": {"kind": "slurm"}}, out=tmp_path / "run")
