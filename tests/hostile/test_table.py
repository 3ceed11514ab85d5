"""Every attack in every world, in plain text and at TLS: refused, counted, named rightly, and without effect.

Here all of them come to one fleet, but for those that would do most to another fleet than the others. Each by itself in
every world is for `tests.soak.in_full`. Of containers and Slurm the tests in their folders have the sample.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests import docker_engine
from tests.hostile.client import STRANGERS
from tests.hostile.table import AT, Placed
from tests.machines import ray_cluster, separated, slurm_cluster
from tests.machines.on_cluster import attacked
from tests.machines.separated import Separated
from tests.namespaces.udp_probe import missing as no_namespaces
from tests.warm import warm_python

ALL = "all at once"
A_MEMBER = "a member"
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
SAMPLED = {
    ("processes", PLAIN): ("zeros in the server's name",),
    ("processes", TLS): (ALL, A_MEMBER),
    ("machines", PLAIN): (ALL,),
}
"""In plain text all of them come to processes as another user, in `test_strangers_of_a_fleet.py`."""


def rows() -> Iterator[ParameterSet]:
    for world in WORLDS:
        for talk in (PLAIN, TLS):
            for attack in (ALL, *STRANGERS, A_MEMBER):
                marks = [] if attack in SAMPLED.get((world, talk), ()) else [pytest.mark.soak]
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
def test_who_comes_changes_nothing(
    world: str, tls: bool, attack: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := WORLDS[world]():
        pytest.skip(reason)
    if world in ("namespaces", "machines"):  # what is started there begins with everything imported
        monkeypatch.setattr(sys, "executable", warm_python())
    attacks = [] if attack == A_MEMBER else list(STRANGERS) if attack == ALL else [attack]
    out, fleet = tmp_path / "run", AT.get(attack, "gossip")
    if world in ("ray", "slurm"):
        attacked(request.getfixturevalue(world), out, fleet, *attacks, tls=tls)
        return
    options = f"kind: {world}"
    if world == "machines":
        options = f"kind: 'tests.machines.separated:SEPARATED', machines: '{request.getfixturevalue(world).told}'"
    elif world == "processes":
        options += ", nodes_per_process: 2"
    placed = Placed(options, tls, beside=world in ("namespaces", "containers"))
    if attacks:
        placed.strangers(attacks, fleet, out)
    else:
        placed.member(out)
