"""The trial of local steps by every way that a run may take, and how it is remembered."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import netdfl
from netdfl.host.blueprint import Blueprint
from netdfl.host.training_problem import TrainingProblem
from netdfl.running.prepare import check_ready
from netdfl.scenario.load import load
from netdfl.training import remembering, trial
from netdfl.training.flat import FlatModel
from netdfl.training.models.buffers import applied
from netdfl.training.models.build import seeded_module
from netdfl.training.perceptron import Perceptron
from netdfl.training.sgd import LocalSgd
from tests.training.plain_torch_modules import ROWS

X, Y = torch.randn(8, 6, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 3
SGD = LocalSgd(lr=0.1)
SLOPE = Perceptron.slope


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(remembering, "OF_THIS_PROCESS", {})
    return tmp_path / "cache" / "netdfl" / "trials"


def perceptron(hidden: int = 5) -> FlatModel:
    return FlatModel(seeded_module(lambda: nn.Sequential(nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, 3)), 2))


def fit(model: FlatModel, local: object = SGD, x: Tensor = X) -> list[str]:
    return trial.fit_ways(model, local, x, Y, 32, rows=True)


def doubled(self: Perceptron, at: Tensor, x: Tensor, y: Tensor, out: Tensor, share: Tensor | None = None) -> Tensor:
    """A formula that is wrong."""
    loss = SLOPE(self, at, x, y, out, share)
    out.mul_(2)
    return loss


@dataclass(frozen=True, kw_only=True)
class NormOfAll(LocalSgd):
    """An own solver that says that it works on rows, and takes one norm of them all."""

    rows = True

    def slope(self, gradient: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
        g = gradient(z)
        return g / g.norm()


@pytest.mark.parametrize("name", ROWS)
def test_of_what_trains_as_in_plain_pytorch_nothing_is_said(name: str) -> None:
    row = ROWS[name]
    x, y = row.data(8, "x")
    module = seeded_module(row.make, 3)
    with torch.no_grad():
        applied(module.eval(), x)  # lazy layers
    sgd = LocalSgd(lr=0.1, rho=0.05, momentum=0.9, clip_norm=1.0)
    assert trial.fit_ways(FlatModel(module, row.loss), sgd, x, y, 32, rows=True) == []


@pytest.mark.parametrize("sgd", [SGD, LocalSgd(lr=0.1, rho=0.1, momentum=0.5, nesterov=True), object()])
def test_a_wrong_formula_is_not_taken(sgd: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Perceptron, "slope", doubled)
    model, found = perceptron(), torch.empty(perceptron().dim)
    (formula, rows) = fit(model, sgd)
    assert "formula of perceptrons leads elsewhere" in formula
    assert "computed one by one" in rows
    assert model.perceptron is None
    assert not model.in_rows
    model.slope(model.flat(), X, Y, found)
    slopes = torch.autograd.grad(cross_entropy(model.module(X), Y), model.parameters)
    assert torch.allclose(found, torch.cat([slope.reshape(-1) for slope in slopes]))


def test_a_solver_that_is_wrong_on_rows_is_computed_alone() -> None:
    model = perceptron()
    (said,) = fit(model, NormOfAll(lr=0.1))
    assert "computed one by one" in said
    assert model.perceptron is not None
    assert not model.in_rows


def test_where_autograd_on_the_vector_leads_elsewhere_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = FlatModel(seeded_module(lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), 2))
    gradient = FlatModel.gradient
    monkeypatch.setattr(FlatModel, "gradient", lambda self, loss, out: gradient(self, loss, out).neg_())
    (said,) = fit(model)
    assert "end elsewhere than in plain PyTorch" in said


class Once(nn.Module):
    """A model that is another one each time."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x) * (time.monotonic_ns() % 997)


def test_a_model_that_does_not_repeat_is_told_and_of_one_that_cant_be_copied_nothing_is() -> None:
    (said,) = fit(FlatModel(Once()))
    assert "end elsewhere each time" in said
    module = nn.Linear(6, 3)
    module.lock = open(os.devnull)  # type: ignore[assignment] # what can not be copied
    assert fit(FlatModel(module)) == []
    module.lock.close()  # type: ignore[operator, union-attr]


def test_a_large_model_is_tried_on_half_as_many_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[int]()
    monkeypatch.setattr(trial, "differing", lambda found: seen.append(len(found.y)) or [])
    fit(perceptron())
    monkeypatch.setattr(trial, "LARGE", 10)
    fit(perceptron())
    assert seen == [8, 4]


def test_the_model_is_as_it_was() -> None:
    model = perceptron()
    before, mode = model.flat(), model.module.training
    fit(model)
    assert torch.equal(model.flat(), before)
    assert model.module.training == mode
    assert all(p.grad is None for p in model.parameters)


def test_a_trial_is_made_once_for_what_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[Any]()
    monkeypatch.setattr(trial, "differing", lambda found: made.append(found) or [])
    for _ in range(2):
        fit(perceptron())
        fit(perceptron(), replace(SGD, lr=0.3))  # a sweep's
        monkeypatch.setattr(remembering, "OF_THIS_PROCESS", {})  # another process
    assert len(made) == 1
    fit(perceptron(hidden=6))
    fit(perceptron(), replace(SGD, momentum=0.9))
    fit(perceptron(), x=torch.cat([X[:, :6]] * 1).double())
    assert len(made) == 4


def test_a_models_code_is_part_of_what_a_trial_is_of() -> None:
    def made(factor: str) -> nn.Module:
        names: dict[str, Any] = {"nn": nn}
        exec(f"class Own(nn.Linear):\n    def forward(self, x):\n        return {factor} * super().forward(x)", names)
        names["Own"].__module__ = "own"
        return names["Own"](6, 3)  # type: ignore[no-any-return]

    assert len({remembering.fingerprint(made(factor), (), "") for factor in ("1", "2", "2")}) == 2
    tied, apart = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert remembering.fingerprint(tied, (), "") != remembering.fingerprint(apart, (), "")


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"differs": 3}', b'{"differs": [3]}', b"\xff\xfe"])
def test_a_damaged_memory_is_none(content: bytes, nothing_remembered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(perceptron())
    (file,) = nothing_remembered.iterdir()
    assert json.loads(file.read_text()) == {"differs": []}
    file.write_bytes(content)
    monkeypatch.setattr(remembering, "OF_THIS_PROCESS", {})
    assert remembering.known(file.name) is None
    assert fit(perceptron()) == []
    assert json.loads(file.read_text()) == {"differs": []}


def test_where_nothing_can_be_written_a_process_remembers_for_itself(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    remembering.remember("key", ["rows"])
    assert remembering.known("key") == ["rows"]


def test_the_oldest_half_is_forgotten(nothing_remembered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembering, "MOST", 4)
    for number in range(6):
        remembering.remember(f"key{number}", [])
        os.utime(nothing_remembered / f"key{number}", (number, number))
    assert {file.name for file in nothing_remembered.iterdir()} == {"key2", "key3", "key4", "key5"}


def test_a_trial_in_a_process_of_its_own_gives_the_same() -> None:
    assert remembering.apart(lambda: ["formula"]) == ["formula"]
    assert remembering.apart(lambda: os._exit(3)) is None


@pytest.mark.parametrize("died", [False, True])
def test_with_a_torch_for_gpus_a_trial_is_made_apart(
    died: bool, nothing_remembered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "grpc")
    here = os.getpid()

    def differing(_: object) -> list[str]:
        assert os.getpid() != here
        return ["formula"] if not died else os._exit(3)

    monkeypatch.setattr(trial, "differing", differing)
    model = perceptron()
    assert len(fit(model)) == (0 if died else 1)
    assert (model.perceptron is None) != died
    assert nothing_remembered.exists() != died  # what died is tried again


MODEL = """
from torch import nn
def net(shape, num_classes, /):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.ReLU(), nn.Linear(4, num_classes))
"""


def test_a_scenario_is_told_and_its_fleet_trains_by_autograd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Perceptron, "slope", doubled)
    (tmp_path / "tried_net.py").write_text(MODEL)
    (tmp_path / "s.yaml").write_text(
        "schema: netdfl/1\nname: tried\nnodes: 2\nrounds: 1\nworld: simulated\ntopology: ring\n"
        'algorithm: {name: dfedavg, lr: 0.1}\ntask: {dataset: digits, model: {name: "tried_net:net"}}\n'
    )
    scenario = load(tmp_path / "s.yaml")
    assert any("model 'tried_net:net': the formula of perceptrons leads elsewhere" in each for each in scenario.notices)
    problem = Blueprint.of(scenario).problem
    assert isinstance(problem, TrainingProblem)
    assert problem.model.perceptron is None
    monkeypatch.setattr(trial, "differing", lambda _: pytest.fail("it was remembered"))
    monkeypatch.setattr(remembering, "OF_THIS_PROCESS", {})
    assert netdfl.run(scenario, out=tmp_path / "run", page=False).result["verdict"] == "done"


@pytest.mark.parametrize("model", ["mlp", "{name: 'tried_own:net'}"])
def test_validate_takes_the_steps_and_the_run_remembers_them(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Perceptron, "slope", doubled)
    (tmp_path / "tried_own.py").write_text(MODEL)
    (tmp_path / "s.yaml").write_text(
        "schema: netdfl/1\nname: tried\nnodes: 2\nrounds: 1\nworld: simulated\ntopology: ring\n"
        f"algorithm: {{name: dfedavg, lr: 0.1}}\ntask: {{dataset: digits, model: {model}}}\n"
    )
    scenario = load(tmp_path / "s.yaml")
    said = [note for note in [*scenario.notices, *check_ready(scenario)] if "leads elsewhere" in note]
    assert len(said) == len(set(said)) == 1, "it is said once"
    monkeypatch.setattr(trial, "differing", lambda _: pytest.fail("it was remembered"))
    monkeypatch.setattr(remembering, "OF_THIS_PROCESS", {})
    assert netdfl.run(scenario, out=tmp_path / "run", page=False).result["verdict"] == "done"


@pytest.mark.parametrize(
    ("cuda", "hip", "grpc", "apart"),
    [(None, None, False, False), ("13.0", None, False, True), (None, "6.2", False, True), ("13.0", None, True, False)],
)
def test_only_a_torch_for_gpus_where_nodes_may_be_forked_needs_a_process_for_trials(
    cuda: str | None, hip: str | None, grpc: bool, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setitem(sys.modules, "grpc", sys)
    if not grpc:
        monkeypatch.delitem(sys.modules, "grpc")
    assert remembering.must_be_apart() is apart
