"""The gradient of a perceptron by its own formula, and which models have one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from netdfl.training.flat import FlatModel
from tests.training.built import build

SHAPE = (1, 4, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("hidden", [[], [7], [7, 6]])
def test_a_perceptrons_formula_is_autograds(hidden: list[int], dtype: torch.dtype) -> None:
    model = FlatModel(build("mlp", SHAPE, 3, 2, hidden=hidden).to(dtype))
    x, y, at = torch.randn(9, *SHAPE, dtype=dtype), torch.arange(9) % 3, model.flat()
    ours, theirs = torch.empty_like(at), torch.empty_like(at)
    assert model.perceptron is not None
    loss = model.slope(at, x, y, ours)
    expected = cross_entropy(model.bind(at, training=True)(x), y)
    model.gradient(expected, theirs)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    assert float(loss) == pytest.approx(float(expected.detach()), rel=tolerance)


@pytest.mark.parametrize(
    "layers",
    [
        (nn.Linear(16, 4, bias=False),),
        (nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 3)),
        (nn.Linear(16, 4), nn.ReLU()),
        (nn.Linear(16, 4), nn.ReLU(), nn.ReLU(), nn.Linear(4, 3)),
        (nn.Dropout(0.1), nn.Linear(16, 3)),
    ],
)
def test_only_perceptrons_have_the_formula(layers: tuple[nn.Module, ...]) -> None:
    assert FlatModel(nn.Sequential(nn.Flatten(), *layers)).perceptron is None


def test_a_hooked_perceptron_has_no_formula() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    module[1].register_forward_hook(lambda *_: None)
    assert FlatModel(module).perceptron is None
