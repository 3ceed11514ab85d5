"""Nodes that live elsewhere, on machines or in containers, on other versions than the supervisor's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from netdfl.core.control import EVALUATOR, Hello
from netdfl.core.errors import MachineError
from netdfl.core.versions import versions_here
from netdfl.record.directory import RunDirectory
from netdfl.record.status import FleetStatus
from netdfl.scenario.load import loads
from netdfl.supervisor.fleet import FleetState
from netdfl.supervisor.software import compare, software_of
from netdfl.worlds.fork_client import ForkServer
from netdfl.worlds.machines.machine import Engine, Machine
from tests.standalone.test_versions import FLEET, OURS, installed


def fleet(notes: list[str], software: Mapping[int, Mapping[str, str]]) -> FleetState:
    nowhere: Any = None
    hellos = {node: Hello(node=node, role="client", versions=versions) for node, versions in software.items()}
    return FleetState(
        scenario=loads(FLEET),
        directory=RunDirectory(Path("nowhere")),
        world=nowhere,
        status=FleetStatus("", "", "", 1),
        store=nowhere,
        note=notes.append,
        hellos=hellos,
    )


def test_a_difference_is_told_once_for_the_fleet_and_recorded() -> None:
    notes: list[str] = []
    made = fleet(notes, {EVALUATOR: OURS, 0: OURS, 1: OURS | {"grpcio": "1.80"}, 2: {}, 3: OURS | {"grpcio": "1.80"}})
    compare(made)
    assert notes == [
        "node 2 did not say on what versions, as older ones of netdfl: digits may differ",
        "node 1, node 3 are on grpcio 1.80, the supervisor on grpcio 1.85: no digit is known to depend on that",
    ]
    assert software_of(made)[1]["grpcio"] == "1.80"


def test_a_node_whose_digits_would_differ_ends_the_start() -> None:
    made = fleet([], {EVALUATOR: OURS, 0: OURS, 1: OURS | {"torch": "2.12.0"}})
    with pytest.raises(
        MachineError, match=r"node 1 is on torch 2\.12\.0, the supervisor on torch 2\.13\.0\+cpu: their"
    ):
        compare(made)


def test_where_nodes_run_on_what_is_here_nothing_is_said() -> None:
    notes: list[str] = []
    compare(made := fleet(notes, {EVALUATOR: {}, 0: {}, 1: {}}))
    assert (notes, software_of(made)) == ([], {})


class Local:
    """Machines that are this one, with other packages. An `Engine`."""

    def __init__(self, packages: Path) -> None:
        self.packages = packages

    def start(self, machine: str) -> ForkServer:
        path = os.pathsep.join([str(self.packages), str(Path(__file__).parents[2])])
        return ForkServer.open(["env", f"PYTHONPATH={path}"])


async def test_a_machine_is_refused_before_it_is_told_of_the_fleet(tmp_path: Path) -> None:
    packages = installed(tmp_path / "there", "numpy", "0.0.1")
    (packages / "torch.py").write_text("raise ModuleNotFoundError('torch')")  # a fleet that trains nothing needs none
    machine = Machine("m1", "127.0.0.1", [0])
    machine.start(cast(Engine, Local(packages)))
    try:
        with pytest.raises(MachineError, match=r"machine m1 is on numpy 0\.0\.1, the supervisor on numpy"):
            await machine.check_versions(versions_here(trains=False), trains=False)
    finally:
        await machine.aclose(0)
