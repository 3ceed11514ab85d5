"""A machine of a real Slurm or Ray cluster dies, daemons and all: the run ends by itself and names it, or waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.testing.world_bench import Keys, events, nodes_of
from tests.machines import ray_cluster, slurm_cluster
from tests.machines.on_cluster import Running, in_round, nodes_on
from tests.machines.separated import Separated

pytestmark = pytest.mark.soak  # clusters, and a machine's time to be missed
CLUSTERS = {"slurm": slurm_cluster, "ray": ray_cluster}
ENDLESS = {
    "wait": {"deadline": "none"},
    "failure_detector": "none",
    "checkpoint": {"every": 1},
    "delivery": {"kind": "acknowledged", "timeout": "300ms"},
}


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    kind = CLUSTERS[request.param]
    if reason := kind.missing():
        pytest.skip(reason)
    with Separated(3) as machines, kind.Cluster(machines) as cluster:
        yield cluster


def test_a_machine_that_dies_is_named_with_its_nodes(cluster: Any, tmp_path: Path) -> None:
    running = Running(cluster, tmp_path, {"rounds": 200})
    running.until(in_round(3))
    name = cluster.machines.names[2]
    cluster.machines.kill(name)
    code = running.ended()
    cluster.boot(name)
    assert code == 1, running.said()
    died = netdfl.open_run(running.path).result["died"]
    (where,) = (nodes for machine, nodes in nodes_on(running.path).items() if nodes == [each["node"] for each in died])
    assert len(where) == 2
    assert " is gone, and node " in running.said()


@pytest.mark.parametrize("keys", [ENDLESS, {}], ids=["waited for", "others go on"])
def test_its_nodes_rejoin_once_it_is_back(cluster: Any, tmp_path: Path, keys: Keys) -> None:
    running = Running(cluster, tmp_path, keys | {"rounds": 1_000_000}, rejoin=True)
    running.until(in_round(3))
    name = cluster.machines.names[2]
    cluster.machines.kill(name)
    running.until(lambda nodes: sum(each["phase"] == "died" for each in nodes) == 2)
    cluster.boot(name)
    running.until(lambda nodes: all(each["phase"] == "running" for each in nodes))
    reached = max(each["round"] or 0 for each in nodes_of(running.path))
    running.until(in_round(reached + 10))
    running.interrupt()
    assert " is back" in running.said()
    restarted = [node for _, node, _, _ in events(netdfl.open_run(running.path), "restart")]
    assert len(restarted) == len(set(restarted)) == 2


def test_a_machine_that_returns_with_another_address_is_found_in_its_network(cluster: Any, tmp_path: Path) -> None:
    """Nothing lives at its old address any more."""
    if cluster.kind == "slurm":
        pytest.skip("Slurm's configuration says where its machines are")
    running = Running(
        cluster, tmp_path, ENDLESS | {"rounds": 1_000_000}, rejoin=True, network=f"{cluster.machines.subnet}.0/24"
    )
    running.until(in_round(3))
    name = cluster.machines.names[2]
    cluster.machines.kill(name)
    running.until(lambda nodes: sum(each["phase"] == "died" for each in nodes) == 2)
    cluster.machines.power_off(name)
    cluster.machines.power_on(name, host=77)
    cluster.boot(name)
    running.until(lambda nodes: all(each["phase"] == "running" for each in nodes))
    reached = max(each["round"] or 0 for each in nodes_of(running.path))
    running.until(in_round(reached + 10))
    running.interrupt()
    restarted = [node for _, node, _, _ in events(netdfl.open_run(running.path), "restart")]
    assert len(restarted) == len(set(restarted)) == 2
