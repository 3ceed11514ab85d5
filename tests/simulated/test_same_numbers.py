"""On lossless links without delay the simulated world computes what the others do, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_scenario import small
from torch import Tensor

from netdfl.core.types import NodeId
from netdfl.host.blueprint import Blueprint
from netdfl.host.models import read_snapshot
from netdfl.running.run import run
from netdfl.scenario.model.schema import Evaluation, Scenario
from netdfl.testing.loopback import run_fleet
from netdfl.worlds.simulated.arithmetic import exact_arithmetic

KEPT = Evaluation(keep_models=True)
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
    finished = run(scenario.model_copy(update={"evaluation": KEPT}), out=out / "run", page=False)
    return {int(file.stem): read_snapshot(file).x for file in (finished.path / "models").iterdir()}


def loopback_models(scenario: Scenario) -> dict[NodeId, Tensor]:
    """Every node's final vector over links that are function calls."""
    blueprint = Blueprint.of(scenario)
    server = blueprint.network.server
    tasks = {
        i: blueprint.problem.idle("cpu") if i == server else blueprint.problem.task(i, "cpu")
        for i in blueprint.node_ids
    }
    kept = run_fleet(blueprint.algorithm, blueprint.network.view, tasks, scenario.rounds)
    return {i: each.states[-1].x for i, each in kept.items()}


@pytest.mark.parametrize("family", [pytest.param("gossip", marks=pytest.mark.soak), "push_sum", "server"])
def test_the_simulated_world_equals_function_calls(family: str, tmp_path: Path) -> None:
    scenario = small(*DIGITS, *FAMILIES[family])
    with exact_arithmetic():
        ours, theirs = simulated_models(scenario, tmp_path), loopback_models(scenario)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[i], theirs[i]) for i in ours)
