"""Fleets on the machines of a Ray cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import netdfl
from netdfl.testing.world_ends import NUMBERS, QUICKSTART, kept_models
from tests import data_apart
from tests.hostile.client import STRANGERS
from tests.machines.on_cluster import attacked, core_link_is_shared, vanished_is_named
from tests.machines.ray_cluster import Cluster, missing
from tests.machines.separated import Separated

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "it is here")
SCENARIO = {"schema": "netdfl/1", "name": "quickstart", **QUICKSTART}


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """A folder with a folder for each machine, in which it alone looks for its data; each has a /tmp of its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def cluster(data: Path) -> Iterator[Cluster]:
    with Separated(3) as machines, Cluster(machines, lean=True, data=data) as cluster:
        yield cluster
    until = time.monotonic() + 30
    while (left := cluster.left()) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left


def _run(
    cluster: Cluster, folder: Path, scenario: Mapping[str, object] = SCENARIO, **world: object
) -> subprocess.CompletedProcess[str]:
    kind = {"kind": "ray", "address": cluster.address, "fidelity": {"relative": 100, "slack": "100s"}}
    folder.mkdir(exist_ok=True)
    file = folder / "scenario.json"
    file.write_text(json.dumps({**scenario, "world": kind | world}), encoding="utf-8")
    command = [sys.executable, "-m", "netdfl", "run", str(file), "--no-page", "--out", str(folder / "run")]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.soak  # half a minute of all cores, with the cluster's start
def test_on_a_cluster_the_numbers_are_those_of_every_world(cluster: Cluster, tmp_path: Path) -> None:
    done = _run(cluster, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    ours = netdfl.open_run(tmp_path / "run")
    theirs = netdfl.run(SCENARIO | {"world": {"kind": "simulated"}}, out=tmp_path / "simulated", page=False)
    assert ours.rows(NUMBERS) == theirs.run.rows(NUMBERS)
    assert kept_models(tmp_path / "run") == kept_models(tmp_path / "simulated")
    assert sorted(ours.result["links"]["machines"].values()) == [[0, 1], [2], [3]]
    assert len(ours.result["links"]["network"]) == 6


@pytest.mark.soak  # two fleets; test_by_hand.py has nodes of which each finds its own file alone
def test_each_node_reads_the_file_on_its_own_machine(
    cluster: Cluster, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = data_apart.scenario(4)
    nowhere = _run(cluster, tmp_path / "nowhere", scenario)
    assert nowhere.returncode == 4, nowhere.stdout + nowhere.stderr
    assert ".csv is not on this machine" in nowhere.stdout
    for number, machine in enumerate(cluster.machines.names):  # Ray may place a node on any machine
        for node in range(4):
            data_apart.write_file(data / machine, node, shift=number)
    done = _run(cluster, tmp_path / "apart", scenario)
    assert done.returncode == 0, done.stdout + done.stderr
    ours = netdfl.open_run(tmp_path / "apart" / "run")
    for machine, nodes in ours.result["links"]["machines"].items():
        for node in nodes:
            data_apart.write_file(tmp_path / "all", node, shift=cluster.machines.names.index(machine))
    monkeypatch.setenv("NETDFL_DATA", str(tmp_path / "all"))
    simulated = netdfl.run(scenario | {"world": "simulated"}, out=tmp_path / "simulated", page=False)
    assert data_apart.personal(ours) == data_apart.personal(simulated.run)


@pytest.mark.soak  # test_table.py has it on machines, whose nodes are reached in the same way
@pytest.mark.parametrize("tls", [False, True], ids=["plain text", "TLS"])
def test_strangers_change_nothing_and_learn_nothing(cluster: Cluster, tls: bool, tmp_path: Path) -> None:
    attacked(cluster, tmp_path / "run", "gossip", *STRANGERS, tls=tls)


@pytest.mark.soak  # `tests.soak.vanished_machines` does it five ways; test_machines.py has it without Ray
def test_a_machine_that_vanishes_is_named_before_ray_says_anything(cluster: Cluster, tmp_path: Path) -> None:
    vanished_is_named(cluster, tmp_path)


@pytest.mark.soak  # test_suite_on_machines.py has it without Ray
def test_messages_between_machines_share_a_core_link(cluster: Cluster, tmp_path: Path) -> None:
    core_link_is_shared(cluster, tmp_path)


@pytest.mark.soak  # the cluster's start takes a quarter of a minute
def test_a_cluster_that_has_too_little_says_what_it_has(cluster: Cluster, tmp_path: Path) -> None:
    done = _run(cluster, tmp_path, cpus_per_node=8)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "3 machines are wanted with {'CPU': 16.0} each, and 0 have that" in done.stderr
