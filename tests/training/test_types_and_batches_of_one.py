"""Models of any real type, targets of any whole one and minibatches of one example train; complex ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

import netdfl
from netdfl.core.errors import InputError, ScenarioError
from netdfl.training.data.own import Datasets, shared
from netdfl.training.flat import FlatModel
from netdfl.training.models.buffers import applied
from netdfl.training.models.build import settle
from netdfl.training.stacked_model import StackedModel
from netdfl.training.tasks.losses import LOSSES, METRICS

X, Y = torch.randn(8, 6), torch.arange(8) % 3
TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def scores(*between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), *between, nn.Linear(5, 3))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("between", [nn.ReLU(), nn.Tanh()], ids=["perceptron", "other"])
def test_inputs_take_the_type_of_the_model(between: nn.Module, dtype: torch.dtype) -> None:
    model = FlatModel(scores(between).to(dtype))
    at, found = model.flat(), torch.empty(model.dim, dtype=model.dtype)
    loss = model.slope(at, X, Y, found)
    expected = cross_entropy(model.module(X.to(dtype)), Y)
    slopes = torch.autograd.grad(expected, list(model.module.parameters()))
    flat = torch.cat([slope.reshape(-1).to(model.dtype) for slope in slopes])
    bound = 1e-12 if dtype == torch.float64 else 1e-6
    assert torch.allclose(found, flat, rtol=0, atol=bound)
    assert float(loss) == pytest.approx(float(expected.detach()), abs=bound)
    assert torch.equal(model.scores(at, X), applied(model.bind(at, training=True), X))
    assert applied(model.module, X).dtype == dtype


def test_inputs_of_whole_numbers_stay_whole() -> None:
    ids = torch.arange(6).view(2, 3)
    module = nn.Sequential(nn.Embedding(6, 2), nn.Flatten()).double()
    assert torch.equal(applied(module, ids), module(ids))


def test_many_models_in_double_are_stacked_in_double() -> None:
    model = FlatModel(scores(nn.ReLU()).double())
    stacked, at, found = StackedModel(model), model.flat(), torch.empty(2, model.dim, dtype=torch.float64)
    share = torch.full((2, 8), 1 / 8, dtype=torch.float64)
    stacked.slope(at.expand(2, -1).contiguous(), X.expand(2, -1, -1), Y.expand(2, -1), share, found)
    single = torch.empty_like(at)
    model.slope(at, X, Y, single)
    assert torch.allclose(found, single.expand(2, -1), rtol=0, atol=1e-14)


def test_several_labels_take_the_type_of_the_scores() -> None:
    said = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    true = (torch.randn(4, 3) > 0).float()
    found = LOSSES["binary_cross_entropy"](said, true)
    found.backward()
    assert float(found.detach()) == float(binary_cross_entropy_with_logits(said, true.double()).detach())


class Complex(nn.Module):
    """A layer of complex numbers that takes real ones and gives real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3, dtype=torch.cfloat)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.to(torch.cfloat)).abs()


def test_complex_models_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"trains 'layer.weight', of complex numbers: keep real and imaginary part"):
        settle(Complex(), X, 0)


WHOLE = [np.uint8, np.int8, np.uint16, np.int16, np.int32, np.uint32, np.int64, np.uint64, bool]


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("read", ["arrays", "one by one"])
def test_masks_of_any_whole_type_are_classes(kind: Any, read: str) -> None:
    x, masks = np.zeros((4, 1, 3, 3), np.float32), (np.arange(36).reshape(4, 3, 3) % 2).astype(kind)
    data = (x, masks) if read == "arrays" else [(one, mask) for one, mask in zip(x, masks, strict=True)]
    found = shared(Datasets(train=data))
    inputs, targets = found.first()
    said = torch.stack([1 - targets.float(), targets.float()], 1) * 9
    assert found.num_classes == 2
    assert torch.equal(targets, torch.from_numpy(masks[:2].astype(np.int64)))
    assert inputs.dtype == torch.float32
    assert float(LOSSES["cross_entropy"](said, targets)) < 0.01
    assert METRICS["mean_iou"](said, targets) == METRICS["accuracy"](said, targets) == 1


MODELS = """
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

def pixels(): return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 10))
def instance():
    norm = nn.InstanceNorm2d(2, track_running_stats=True)
    return nn.Sequential(nn.Conv2d(1, 2, 3), norm, nn.Flatten(), nn.Linear(72, 10))
def spectral(): return nn.Sequential(nn.Flatten(), spectral_norm(nn.Linear(64, 10)))
def batch(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
def untracked():
    norm = nn.BatchNorm1d(8, track_running_stats=False)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), norm, nn.Linear(8, 10))
"""


def _scenario(folder: Path, model: str, **task: Any) -> dict[str, Any]:
    (folder / "small.py").write_text(MODELS)
    given = {"dataset": "digits", "model": {"name": f"small:{model}"}, "batch_size": 1}
    algorithm = {"name": "dfedavg", "lr": 0.01, "local_steps": 2}
    lines = {"schema": "netdfl/1", "name": "small", "nodes": 2, "rounds": 1, "world": "simulated", "topology": "ring"}
    return {**lines, "task": given | task, "algorithm": algorithm}


@pytest.mark.parametrize("model", ["pixels", "instance", "spectral"])
def test_minibatches_of_one_train_where_pytorch_trains_on_them(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = netdfl.run(_scenario(tmp_path, model), out=tmp_path / "run", page=False)
    assert done.result["verdict"] == "done"


@pytest.mark.parametrize(
    ("model", "task", "said"),
    [
        ("batch", {}, r"a minibatch has one, .* \(ValueError: Expected more than 1 value.*set a larger batch_size"),
        ("untracked", {}, r"a minibatch has one.*set a larger batch_size"),
        ("batch", {"batch_size": 718}, r"client 0 has 719 .*set drop_last: true"),
    ],
)
def test_minibatches_of_one_are_refused_where_pytorch_refuses_them(
    model: str, task: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InputError, ScenarioError), match=said):
        netdfl.run(_scenario(tmp_path, model, **task), out=tmp_path / "run", page=False)
