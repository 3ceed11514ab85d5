"""On lossless links without delay the simulated world computes what the others do, bit for bit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from conftest import small
from torch import Tensor

from netdfl.core.types import NodeId
from netdfl.fleet.build import Blueprint
from netdfl.fleet.compute import constant
from netdfl.fleet.run import Silent
from netdfl.fleet.simulated import SimulatedFleet, exact_arithmetic
from netdfl.fleet.virtual_loop import VirtualClock, VirtualLoop
from netdfl.record.event_log import EventLog
from netdfl.record.run import RunDirectory
from netdfl.record.status import FleetStatus
from netdfl.scenario.model.schema import Scenario
from netdfl.testing.loopback import run_fleet

DIGITS = (
    "task={kind: train, dataset: {name: digits, partition: {kind: dirichlet, alpha: 0.5}}, model: mlp}",
    "rounds=3",
)
FAMILIES = {
    "gossip": ("algorithm={name: dfedavg, lr: 0.1, local_epochs: 1}", "topology=ring"),
    "push_sum": ("algorithm={name: osgp, lr: 0.1, local_epochs: 1}", "topology={kind: random_push, out_neighbors: 2}"),
    "server": ("algorithm={name: fedavg, lr: 0.1, local_epochs: 1}", "topology={kind: star, participation: 0.5}"),
}


def simulated_models(scenario: Scenario, out: Path) -> dict[NodeId, Tensor]:
    """Every node's final vector in the simulated world."""
    blueprint = Blueprint.of(scenario)
    loop = VirtualLoop()
    directory = RunDirectory.create(out, scenario.name, scenario.seed, out / "run")
    status = FleetStatus(scenario.name, "simulated", "", scenario.rounds)
    log = EventLog(VirtualClock(loop), 0)
    fleet = SimulatedFleet(blueprint, directory, loop, constant(blueprint.streams), log, status, Silent())
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(fleet.run())
    assert fleet.close() == ""
    return {i: node.kept.x for i, node in fleet.nodes.items() if node.kept is not None}


def loopback_models(scenario: Scenario) -> dict[NodeId, Tensor]:
    """Every node's final vector over links that are function calls."""
    blueprint = Blueprint.of(scenario)
    server = blueprint.network.server
    tasks = {
        i: blueprint.problem.idle() if i == server else blueprint.problem.task(i, "cpu") for i in blueprint.node_ids
    }
    kept = run_fleet(blueprint.algorithm, blueprint.network.view, tasks, scenario.rounds)
    return {i: each.states[-1].x for i, each in kept.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_simulated_world_equals_function_calls(family: str, tmp_path: Path) -> None:
    scenario = small(*DIGITS, *FAMILIES[family])
    with exact_arithmetic():
        ours, theirs = simulated_models(scenario, tmp_path), loopback_models(scenario)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[i], theirs[i]) for i in ours)
