"""The flat vector is the model: no copy, and the gradient that autograd gives layer by layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from netdfl.training.flat import FlatModel


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 16, 3))


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(5, 1, 6, 6, generator=generator), torch.randint(0, 3, (5,), generator=generator)


def test_binding_copies_nothing() -> None:
    model = FlatModel(module())
    at = model.flat()
    bound = model.bind(at, training=True)
    first = next(bound.parameters())
    assert first.data_ptr() == at.data_ptr()
    at[0] = 42.0
    assert float(first.detach().reshape(-1)[0]) == 42.0
    assert model.dim == at.numel() == sum(p.numel() for p in module().parameters())


class Empty(nn.Linear):
    """A module that has a length, which is no truth about it."""

    def __len__(self) -> int:
        return 0


class Unsized(nn.Linear):
    """A module that refuses to have a length, as one that `torch.compile` made."""

    def __len__(self) -> int:
        raise TypeError("no length")


@pytest.mark.parametrize("kind", [Empty, Unsized])
def test_a_module_is_used_itself_whatever_its_length(kind: type[nn.Linear]) -> None:
    given = kind(3, 2)
    model = FlatModel(given)
    assert model.bind(model.flat(), training=True) is given


def test_flat_and_bind_are_inverse_and_flat_is_fresh() -> None:
    model = FlatModel(module())
    at = torch.arange(model.dim, dtype=torch.float32)
    model.bind(at, training=True)
    out = model.flat()
    assert torch.equal(out, at)
    assert out.data_ptr() != at.data_ptr()


def test_the_flat_gradient_is_autograds() -> None:
    x, y = batch()
    model, plain = FlatModel(module()), module()
    at = model.flat()
    out = torch.empty_like(at)
    got = model.gradient(cross_entropy(model.bind(at, training=True)(x), y), out)
    cross_entropy(plain(x), y).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in plain.parameters() if p.grad is not None])
    assert torch.equal(got, expected)
    assert got.data_ptr() == out.data_ptr()


def test_vectors_in_turn_each_give_their_own_result() -> None:
    """Nodes of one process share the module; a step in place between two binds of one vector counts."""
    x, _ = batch()
    model = FlatModel(module())
    one = model.flat()
    two = one * 0.5
    first = model.bind(one, training=True)(x)
    second = model.bind(two, training=True)(x)
    assert not torch.equal(first, second)
    assert torch.equal(model.bind(one, training=True)(x), first)
    one.mul_(0.5)
    assert torch.equal(model.bind(one, training=True)(x), second)


def test_a_vector_of_the_wrong_length_is_refused() -> None:
    model = FlatModel(module())
    with pytest.raises(RuntimeError):
        model.bind(torch.zeros(model.dim + 1), training=True)


def test_frozen_parameters_stay_out_of_the_vector() -> None:
    net = module()
    first = next(net.parameters())
    first.requires_grad_(False)
    model = FlatModel(net)
    assert model.dim == sum(p.numel() for p in net.parameters()) - first.numel()
    assert torch.equal(model.flat(), torch.cat([p.detach().reshape(-1) for p in list(net.parameters())[1:]]))
