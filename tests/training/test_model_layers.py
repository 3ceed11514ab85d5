"""Layers of our own compute what torch's do: values and gradients, for whole batches and under vmap."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from netdfl.training.models.catalog import cifar_cnn, convnet
from netdfl.training.models.layers import ChannelsLast, HalvingAverage
from tests.training.torch_alone import of_torch_alone


@pytest.mark.parametrize("shape", [(2, 3, 8, 6), (2, 3, 9, 7), (1, 1, 2, 2), (5, 4, 8, 8)])
def test_the_halving_average_is_average_pooling(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    ours, theirs = HalvingAverage()(x), nn.AvgPool2d(2)(x)
    weights = torch.randn_like(ours)
    torch.testing.assert_close(ours, theirs, rtol=1e-15, atol=1e-15)
    slopes = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (ours, theirs)]
    torch.testing.assert_close(*slopes, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("make", [cifar_cnn, convnet])
def test_a_model_and_its_plain_form_agree(make) -> None:
    torch.manual_seed(0)
    model = make((3, 32, 32), 10).double()
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.3, 0.3)
    reference, x = of_torch_alone(model), torch.randn(4, 3, 32, 32, dtype=torch.float64, requires_grad=True)
    scores, expected = model(x), reference(x)
    torch.testing.assert_close(scores, expected, rtol=1e-10, atol=1e-10)
    found = torch.autograd.grad(scores.square().sum(), [*model.parameters(), x])
    wanted = torch.autograd.grad(expected.square().sum(), [*reference.parameters(), x])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("make", [cifar_cnn, convnet])
def test_models_run_in_rows(make) -> None:
    model, x = make((3, 16, 16), 10), torch.randn(3, 4, 3, 16, 16)
    vectors = {name: torch.randn(3, *p.shape) * 0.1 for name, p in model.named_parameters()}

    def loss(vectors: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return functional_call(model, vectors, (x,)).square().sum()

    together = vmap(grad(loss))(vectors, x)
    for row in range(3):
        alone = grad(loss)({name: v[row] for name, v in vectors.items()}, x[row])
        for name, slope in alone.items():
            torch.testing.assert_close(together[name][row], slope, rtol=1e-3, atol=1e-4)


def test_channels_last_changes_where_numbers_lie_and_nothing_else() -> None:
    seen: list[bool] = []

    class Look(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x.is_contiguous(memory_format=torch.channels_last))
            return x

    x = torch.randn(2, 3, 4, 5)
    assert torch.equal(ChannelsLast(Look())(x), x)
    assert seen == [True]
