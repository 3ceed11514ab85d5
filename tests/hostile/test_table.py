"""Every attack of a stranger, in every world, in plain text and at TLS: refused, counted, named, and without effect.

In processes in plain text each attack has a fleet of its own here; elsewhere all of them come to one. Each in every
world is for `tests.soak.in_full`. Of containers, Ray and Slurm the tests in their folders have the sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests import docker_engine
from tests.hostile.client import STRANGERS
from tests.hostile.table import AT, attack_in
from tests.machines import ray_cluster, separated, slurm_cluster
from tests.machines.on_cluster import attacked
from tests.machines.separated import Separated
from tests.namespaces.udp_probe import missing as no_namespaces

ALL = "all at once"
PLAIN, TLS = "plain text", "TLS"
WORLDS = {
    "processes": lambda: "",
    "namespaces": no_namespaces,
    "machines": separated.missing,
    "containers": docker_engine.missing,
    "ray": ray_cluster.missing,
    "slurm": slurm_cluster.missing,
}
"""The worlds, and what says why one can't be had here."""
SAMPLED = ("processes", "namespaces", "machines")


def rows() -> Iterator[ParameterSet]:
    for world in WORLDS:
        for talk in (PLAIN, TLS):
            each = (world, talk) == ("processes", PLAIN)
            for attack in (ALL, *STRANGERS):
                often = world in SAMPLED and each == (attack != ALL)
                marks = [] if often else [pytest.mark.soak]
                yield pytest.param(world, talk == TLS, attack, marks=marks, id=f"{world}-{talk}-{attack}")


@pytest.fixture(scope="module")
def machines() -> Iterator[Separated]:
    with Separated(2, six=True) as machines:
        yield machines


@pytest.fixture(scope="module")
def ray() -> Iterator[ray_cluster.Cluster]:
    with Separated(2) as machines, ray_cluster.Cluster(machines, lean=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def slurm() -> Iterator[slurm_cluster.Cluster]:
    with Separated(3, six=True) as machines, slurm_cluster.Cluster(machines) as cluster:
        yield cluster


@pytest.mark.parametrize(("world", "tls", "attack"), list(rows()))
def test_strangers(world: str, tls: bool, attack: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if reason := WORLDS[world]():
        pytest.skip(reason)
    attacks, fleet = (list(STRANGERS), "gossip") if attack == ALL else ([attack], AT.get(attack, "gossip"))
    out = tmp_path / "run"
    if world == "processes":
        attack_in("kind: processes, nodes_per_process: 2", attacks, out, fleet=fleet, tls=tls)
    elif world == "machines":
        told = request.getfixturevalue("machines").told
        kind = f"kind: 'tests.machines.separated:SEPARATED', machines: '{told}'"
        attack_in(kind, attacks, out, fleet=fleet, tls=tls)
    elif world in ("namespaces", "containers"):
        attack_in(f"kind: {world}", attacks, out, fleet=fleet, tls=tls, beside=True)
    else:
        attacked(request.getfixturevalue(world), attacks, out, fleet=fleet, tls=tls)
