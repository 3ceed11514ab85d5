"""Batch norm in three ways, torch's optimizers, and schedules of the rate, through whole runs and by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import netdfl
from netdfl.core.errors import InputError, ScenarioError
from netdfl.core.types import View
from netdfl.host.models import read_snapshot
from netdfl.running.judged import FinishedRun
from netdfl.training.base import Gradient, Received
from netdfl.training.models.buffers import Buffers
from netdfl.training.optimized import OptimizedSgd
from netdfl.training.stepping import OptimizerChoice, Schedule
from tests.training.built import build

NORMED = """
from torch import nn


class Normed(nn.Sequential):
    def __init__(self, width: int = 6):
        layers = [nn.Flatten(), nn.Linear(64, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 10)]
        super().__init__(*layers)
"""
BASE = {
    "schema": "netdfl/1",
    "name": "normed",
    "seed": 1,
    "nodes": 3,
    "rounds": 2,
    "world": "simulated",
    "task": {"model": {"name": "normed:Normed"}, "dataset": "digits", "drop_last": True},
    "algorithm": {"name": "dfedavg", "lr": 0.1, "local_steps": 3},
    "topology": "ring",
}


def ran(folder: Path, *sets: str, out: str = "run", **more: Any) -> FinishedRun:
    import json

    (folder / "normed.py").write_text(NORMED)
    (folder / "s.yaml").write_text(json.dumps(BASE | more))
    return netdfl.run(netdfl.load(folder / "s.yaml", sets), out=folder / out, page=False)


def vectors(done: FinishedRun) -> list[Tensor]:
    return [read_snapshot(file).x for file in sorted((done.path / "models").iterdir())]


def test_averaged_statistics_travel_with_the_model(tmp_path: Path) -> None:
    done = ran(tmp_path)
    found = vectors(done)
    (size,) = {len(x) for x in found}
    assert size == 64 * 6 + 6 + 12 + 60 + 10 + 13
    # nodes of a full graph end a round with the mean of all: statistics too
    full = vectors(ran(tmp_path, "topology=full", out="full"))
    assert all(torch.allclose(x, full[0], atol=1e-6) for x in full)
    assert float((full[0][-13:-7].abs()).sum()) > 0
    assert done.model()[2].running_mean.tolist() == pytest.approx(torch.stack(found).mean(0)[-13:-7].tolist())


def test_local_statistics_stay_with_their_node(tmp_path: Path) -> None:
    done = ran(tmp_path, "topology=full", "task.model.buffers=local")
    first, second, _ = vectors(done)
    assert torch.allclose(first[:-13], second[:-13], atol=1e-6)
    assert not torch.allclose(first[-13:-7], second[-13:-7])
    assert done.model(1)[2].running_mean.tolist() == pytest.approx(second[-13:-7].tolist())
    sent = {policy: ran(tmp_path, f"task.model.buffers={policy}", out=policy) for policy in ("average", "local")}
    extra = sent["average"].result["bytes_sent"] - sent["local"].result["bytes_sent"]
    assert extra == 4 * 13 * sent["local"].result["messages"]["sent"]


def test_statistics_that_nobody_keeps_are_taken_anew(tmp_path: Path) -> None:
    done = ran(tmp_path, "task.model.buffers=reset", "rounds=6")
    assert {len(x) for x in vectors(done)} == {64 * 6 + 6 + 12 + 60 + 10}
    assert done.result["test_accuracy"]["average_model"]["last"] > 0.3
    assert float(done.model()[2].running_var.sum()) != 6.0


OFTEN = {("osgp", "average"), ("fedavg", "local"), ("scaffold", "average"), ("ad_psgd", "local")}


@pytest.mark.parametrize(
    ("algorithm", "policy"),
    [
        pytest.param(algorithm, policy, marks=[] if (algorithm, policy) in OFTEN else [pytest.mark.soak])
        for algorithm in ("osgp", "fedavg", "scaffold", "ad_psgd")
        for policy in ("average", "local")
    ],
)
def test_statistics_fit_every_family(tmp_path: Path, algorithm: str, policy: str) -> None:
    """40 steps of a net of width 16 learn the digits: .84 to .87 of them, where chance has .1."""
    graph = {"osgp": "directed_ring", "ad_psgd": "ring"}.get(algorithm, "star")
    extra = ["nodes=4"] if algorithm == "ad_psgd" else []
    sets = [f"algorithm.name={algorithm}", f"topology={graph}", f"task.model.buffers={policy}", *extra]
    done = ran(tmp_path, *sets, "rounds=8", "algorithm.local_steps=5", "task.model.width=16")
    assert done.result["test_accuracy"]["average_model"]["last"] > 0.75
    assert torch.isfinite(torch.cat(vectors(done))).all()


def test_a_resumed_node_keeps_its_own_statistics(tmp_path: Path) -> None:
    crash = {"at_round": 1, "crash": 1, "restart_after": "1ms", "state": "kept"}
    more = {"rounds": 3, "task": BASE["task"] | {"model": {"name": "normed:Normed", "buffers": "local"}}}  # type: ignore[operator]
    plain = vectors(ran(tmp_path, **more))
    again = vectors(ran(tmp_path, out="crashed", events=[crash], **more))
    assert not torch.equal(plain[1][-13:], torch.zeros(13))
    assert again[1][-1] == plain[1][-1] == 9  # minibatches that its statistics have seen


def test_what_running_statistics_can_not_do_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"oledfl_sgd moves a model beyond.*set buffers: local"):
        ran(tmp_path, "algorithm={name: oledfl_sgd, beta: 0.3}")
    with pytest.raises(InputError, match=r"a minibatch has one.*set drop_last: true"):
        ran(tmp_path, "task.drop_last=false", "task.batch_size=478", out="one")


def test_resnet_18_has_the_papers_size() -> None:
    module = build("resnet18", (3, 32, 32), 10, 0)
    assert sum(p.numel() for p in module.parameters()) == 11_173_962
    assert Buffers(module, [name for name, _ in module.named_buffers()]).size == 9_620


class Bowl:
    """Minibatch gradients of |x - 1|^2 / 2."""

    def steps(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Gradient]:
        for _ in range(steps or 0):
            yield lambda at: at - 1


def view(round: int) -> View:
    return View(
        node=0,
        round=round,
        num_nodes=1,
        out_neighbors=(),
        in_neighbors=(),
        out_weights={},
        in_weights={},
        self_weight=1.0,
    )


@pytest.mark.parametrize("name", ["adam", "adamw", "nadam", "radam", "adamax", "adagrad", "adadelta", "rmsprop"])
def test_kept_state_goes_on_and_reset_state_begins_anew(name: Any) -> None:
    def end(state: Any, rounds: int, steps: int) -> Tensor:
        solver = OptimizedSgd(lr=0.1, steps=steps, optimizer=OptimizerChoice(name=name, state=state), decay=0.01)
        x = torch.zeros(3)
        kept = solver.init(x, view(0))
        for round in range(rounds):
            kept, update = solver.train(kept, x, Received(), 1.0, Bowl(), view(round))  # type: ignore[arg-type]
            x = update.x
        return x

    torch.testing.assert_close(end("kept", 2, 3), end("reset", 1, 6))
    assert not torch.allclose(end("reset", 2, 3), end("kept", 2, 3)) or name == "rmsprop"


def test_adam_on_the_flat_vector_is_torchs_on_the_module(tmp_path: Path) -> None:
    solver = OptimizedSgd(lr=0.1, steps=4, optimizer=OptimizerChoice(name="adam"))
    x = torch.tensor([0.0, 3.0])
    _, update = solver.train(solver.init(x, view(0)), x, Received(), 1.0, Bowl(), view(0))  # type: ignore[arg-type]
    theirs = x.clone().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        (0.5 * (theirs - 1).square().sum()).backward()
        optimizer.step()
    torch.testing.assert_close(update.x, theirs.detach())


def test_adam_trains_a_fleet_and_goes_not_with_momentum(tmp_path: Path) -> None:
    adam = {"name": "adamw", "state": "kept"}
    method = {"name": "osgp", "lr": 0.01, "local_steps": 8, "optimizer": adam, "weight_decay": 0.01}
    done = ran(tmp_path, "rounds=5", "task.model=mlp", "topology=directed_ring", algorithm=method)
    assert done.result["test_accuracy"]["average_model"]["last"] > 0.5
    with pytest.raises(ScenarioError, match="unknown key 'optimizer'"):
        ran(tmp_path, algorithm={"name": "scaffold", "optimizer": adam}, topology="star", out="scaffold")
    with pytest.raises(ScenarioError, match="momentum is plain SGD's, and optimizer is adamw"):
        ran(tmp_path, algorithm={"name": "dpsgd", "momentum": 0.9, "optimizer": adam}, out="momentum")


def test_schedules_are_the_fields() -> None:
    assert [Schedule(warmup=4).factor(t) for t in (0, 1, 3, 4, 99)] == [0.25, 0.5, 1.0, 1.0, 1.0]
    step = Schedule(kind="step", every=10, gamma=0.5)
    assert [step.factor(t) for t in (0, 9, 10, 25)] == [1.0, 1.0, 0.5, 0.25]
    cosine = Schedule(kind="cosine", rounds=20, floor=0.1)
    assert [cosine.factor(t) for t in (0, 10, 20, 30)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert cosine.factor(5) == pytest.approx(0.1 + 0.45 * (1 + math.cos(math.pi / 4)))


def test_a_scheduled_rate_moves_a_run_as_far_as_its_factors_say(tmp_path: Path) -> None:
    """On one node with a linear loss the model moves by the sum of the rates."""
    method = {"name": "dfedavg", "lr": 0.1, "local_steps": 1, "schedule": {"kind": "cosine", "warmup": 1}}
    task = {"kind": "quadratic", "dim": 2}
    done = ran(tmp_path, "rounds=5", "nodes=2", algorithm=method, task=task)
    rates = [0.1 * Schedule(kind="cosine", warmup=1, rounds=5).factor(t) for t in range(5)]
    errors = [value for (value,) in done.run.rows("SELECT value FROM metrics WHERE name = 'error' ORDER BY round")]
    assert [b / a for a, b in pairwise(errors)] == pytest.approx([1 - rate for rate in rates[1:]])
