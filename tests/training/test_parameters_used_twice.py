"""Modules whose parameters are used twice, tied, hooked or sparse train as in plain PyTorch, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding

from netdfl.training.flat import FlatModel
from netdfl.training.models.build import seeded_module, settle
from netdfl.training.models.copying import copied
from netdfl.training.stacked_model import StackedModel

REAL, WHOLE = torch.randn(9, 16), torch.arange(36).view(9, 4) % 20
Y = torch.arange(9) % 3


def used_twice() -> nn.Module:
    hidden = nn.Linear(8, 8)
    return nn.Sequential(nn.Linear(16, 8), nn.ReLU(), hidden, nn.ReLU(), hidden, nn.ReLU(), nn.Linear(8, 3))


def tied() -> nn.Module:
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight = first.weight
    return nn.Sequential(nn.Linear(16, 8), nn.ReLU(), first, nn.ReLU(), second, nn.ReLU(), nn.Linear(8, 3))


def biases_tied() -> nn.Module:
    first, second = nn.Linear(16, 3), nn.Linear(3, 3)
    second.bias = first.bias
    return nn.Sequential(first, nn.ReLU(), second)


def one_relu() -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(nn.Linear(16, 8), relu, nn.Linear(8, 8), relu, nn.Linear(8, 3))


def own_forward() -> nn.Module:
    made = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    plain = made[2].forward
    made[2].forward = lambda x: 2 * plain(x)  # type: ignore[method-assign]
    return made


def forward_around_the_whole() -> nn.Module:
    made = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    layers = list(made)

    def forward(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x)
        return x + made[2].bias

    made.forward = forward  # type: ignore[method-assign]
    return made


def gradients_hooked() -> nn.Module:
    made = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    mask = (torch.arange(16) % 2).float()
    made[0].weight.register_hook(lambda slope: slope * mask)
    return made


def backward_hooked() -> nn.Module:
    made = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    made[2].register_full_backward_pre_hook(lambda _, slopes: tuple(-slope for slope in slopes))
    return made


def sparse() -> nn.Module:
    return nn.Sequential(nn.Embedding(20, 5, sparse=True), nn.Flatten(), nn.Linear(20, 3))


def sparse_bag() -> nn.Module:
    return nn.Sequential(nn.EmbeddingBag(20, 5, mode="sum", sparse=True), nn.Linear(5, 3))


class Functional(nn.Module):
    """A sparse gradient that no layer's attribute shows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(20, 3))

    def forward(self, x: Tensor) -> Tensor:
        return embedding(x, self.table, sparse=True).sum(1)


KINDS = [used_twice, tied, biases_tied, one_relu, own_forward, forward_around_the_whole, gradients_hooked]
SPARSE = [sparse, sparse_bag, Functional]
ALL = [(kind, REAL) for kind in (*KINDS, backward_hooked)] + [(kind, WHOLE) for kind in SPARSE]
by_kind = pytest.mark.parametrize(("make", "x"), ALL, ids=lambda value: getattr(value, "__name__", ""))


def plain_slope(make: Callable[[], nn.Module], x: Tensor) -> Tensor:
    """The gradient as a loop in PyTorch has it, of each parameter once."""
    module = seeded_module(make, 3)
    cross_entropy(module(x), Y).backward()
    return torch.cat([p.grad.to_dense().reshape(-1) for p in module.parameters() if p.grad is not None])


def slope(model: FlatModel, x: Tensor) -> Tensor:
    found = torch.empty(model.dim)
    model.slope(model.flat(), x, Y, found)
    return found


@by_kind
def test_the_gradient_is_plain_pytorchs(make: Callable[[], nn.Module], x: Tensor) -> None:
    model = FlatModel(seeded_module(make, 3))
    assert torch.allclose(slope(model, x), plain_slope(make, x), rtol=1e-5, atol=1e-6)


@by_kind
def test_a_second_threads_copy_has_the_same_gradient(make: Callable[[], nn.Module], x: Tensor) -> None:
    model = FlatModel(seeded_module(make, 3))
    first = slope(model, x)
    model.bind(model.flat(), training=True)
    with ThreadPoolExecutor(1) as pool:
        assert torch.equal(pool.submit(slope, model, x).result(), first)


@by_kind
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_stacked_gradients_are_single_ones_or_are_not_taken(make: Callable[[], nn.Module], x: Tensor) -> None:
    model = FlatModel(seeded_module(make, 3))
    stacked, at = StackedModel(model), model.flat()
    if stacked.agrees(at, x, Y):
        found = torch.empty(2, model.dim)
        rows = (at.expand(2, -1).contiguous(), x.expand(2, *x.shape), Y.expand(2, -1))
        stacked.slope(*rows, torch.full((2, 9), 1 / 9), found)
        assert torch.allclose(found, slope(model, x).expand(2, -1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("make", [sparse, sparse_bag])
def test_the_loss_of_a_sparse_embedding_is_differentiable_by_the_vector(make: Callable[[], nn.Module]) -> None:
    model = FlatModel(seeded_module(make, 3))
    at = model.flat().requires_grad_()
    (found,) = torch.autograd.grad(model.loss(model.scores(at, WHOLE), Y), at)
    assert torch.allclose(found, plain_slope(make, WHOLE), rtol=1e-5, atol=1e-6)


def test_a_copy_keeps_hooks_of_gradients_of_its_own() -> None:
    module = seeded_module(gradients_hooked, 3)
    copy = copied(module)
    cross_entropy(copy(REAL), Y).backward()
    assert (copy[0].weight.grad[:, 0] == 0).all()
    assert (copy[0].weight.grad[:, 1] != 0).any()
    assert module[0].weight.grad is None


class Aliased(nn.Module):
    """Tied by memory: PyTorch's optimizers change what is written in place."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 3, bias=False), nn.Linear(16, 3, bias=False)
        if how == "parameter":
            self.two.weight = nn.Parameter(self.one.weight.data)
        elif how == "buffer":
            self.register_buffer("seen", self.one.weight.data[1:])
        elif how == "attribute":
            self.seen = self.one.weight.detach().T
        else:
            self.one.weight.register_post_accumulate_grad_hook(lambda _: None)

    def forward(self, x: Tensor) -> Any:
        return self.one(x) + self.two(x)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("parameter", "'one.weight' and 'two.weight' of the model share memory"),
        ("buffer", "'one.weight' and 'seen' of the model share memory"),
        ("attribute", "of the model share memory"),
        ("hook", "parameter 'one.weight' has a hook that runs when gradients are accumulated"),
    ],
)
def test_what_only_plain_pytorch_would_tie_is_refused(how: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        settle(Aliased(how), REAL, 0)


@pytest.mark.parametrize("wrap", [nn.utils.spectral_norm, nn.utils.weight_norm, nn.utils.parametrizations.weight_norm])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_wrapped_layers_are_not_taken_for_aliases(wrap: Callable[[nn.Module], nn.Module]) -> None:
    assert settle(wrap(nn.Linear(16, 3)), REAL, 0).shape == (9, 3)


def test_parameters_that_lie_side_by_side_are_not_taken_for_aliases() -> None:
    module = nn.Linear(16, 3)
    memory = torch.randn(51)
    module.weight.data, module.bias.data = memory[:48].view(3, 16), memory[48:]
    settle(copied(module), REAL, 0)
    assert settle(module, REAL, 0).shape == (9, 3)
