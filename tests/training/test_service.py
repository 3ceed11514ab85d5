"""Local rounds computed together equal those computed by themselves: bit for bit, or up to rounding where stacked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from netdfl.core.errors import NotFiniteError
from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.training.alone import one_by_one
from netdfl.training.base import Gradient, LocalData, Received, StepRequests, Update, alone, requested
from netdfl.training.classification import Classification, RoundPass
from netdfl.training.control import CONTROL, MOMENTUM, FedCmSolver, FedDynSolver, ScaffoldSolver
from netdfl.training.data.examples import Samples
from netdfl.training.flat import FlatModel
from netdfl.training.guided import INPUTS, LABELS, FedSynSamSolver
from netdfl.training.masked import MaskedSgd
from netdfl.training.momentum import KeptMomentum, QuasiGlobal
from netdfl.training.perturbation import PERTURBATION, Lesam, Smoo
from netdfl.training.service import Service
from netdfl.training.sgd import FixedPoint, LocalSgd
from netdfl.training.stacked_model import StackedModel
from tests.training.built import build

SIZES = (40, 7, 33, 64, 1, 0, 16, 40)
SHAPE = (1, 4, 4)
ROUNDS = 3
SGD = LocalSgd(lr=0.1, epochs=2)
STACKED: dict[str, Any] = {
    "sgd": SGD,
    "everything": LocalSgd(lr=0.2, lr_decay=0.5, epochs=2, momentum=0.9, rho=0.1, weight_decay=0.01, clip_norm=0.5),
    "steps": LocalSgd(lr=0.1, steps=5, momentum=0.5),
    "epochs_and_steps": LocalSgd(lr=0.1, epochs=2, steps=3),
    "kept_momentum": KeptMomentum(LocalSgd(lr=0.1, epochs=2, momentum=0.9, nesterov=True)),
    "quasi_global": QuasiGlobal(LocalSgd(lr=0.1, epochs=2, momentum=0.9), 0.9),
    "scaffold": ScaffoldSolver(SGD),
    "fedcm": FedCmSolver(LocalSgd(lr=0.1, epochs=2, rho=0.05), 0.3),
    "feddyn": FedDynSolver(SGD, 0.1),
    "fedlesam": Lesam(SGD, 0.1),
    "fedlesam_s": Lesam(ScaffoldSolver(SGD), 0.1),
    "fedsmoo": Smoo(FedDynSolver(SGD, 0.1), 0.1),
    "fedsmoo_paper": Smoo(FedDynSolver(SGD, 0.1), 0.1, less_last=True),
}
SINGLE: dict[str, Any] = {
    "asyng": FixedPoint(SGD),
    "fedsynsam": FedSynSamSolver(sgd=SGD, rho=0.1, beta=0.5, batch=4),
    "dispfl": MaskedSgd(
        sgd=SGD,
        density=0.5,
        layout="uniform",
        anneal=0.5,
        anneal_rounds=10,
        regrow="gradient",
        streams=Streams(1),
    ),
}


@pytest.fixture(autouse=True)
def _as_in_a_run() -> Iterator[None]:
    """Every world computes with one thread to a node."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass
class Call:
    """What `LocalRound` is, for a solver alone."""

    solver: Any
    state: Any
    y: Tensor
    received: Received
    weight: float
    data: LocalData
    view: View

    @property
    def _arguments(self) -> tuple[Any, ...]:
        return self.state, self.y, self.received, self.weight, self.data, self.view

    def __call__(self) -> tuple[Any, Update]:
        trained: tuple[Any, Update] = self.solver.train(*self._arguments)
        return trained

    def solve(self) -> StepRequests[tuple[Any, Update]]:
        return requested(self.solver, *self._arguments)


def flipped(x: Tensor, rng: np.random.Generator) -> Tensor:
    return x.flip(-1) if rng.random() < 0.5 else x


def tasks(
    module: nn.Module | None = None,
    sizes: Sequence[int] = SIZES,
    batch_size: int = 16,
    shape: tuple[int, ...] = SHAPE,
    augment: Callable[[Tensor, np.random.Generator], Tensor] | None = None,
) -> list[Classification]:
    """Clients with data of their own and one model."""
    model = FlatModel(build("mlp", shape, 3, 0, hidden=[8, 5]) if module is None else module)
    start, made = model.flat(), []
    for node, size in enumerate(sizes):
        generator = torch.Generator().manual_seed(node)
        x, y = torch.randn(size, *shape, generator=generator), torch.randint(0, 3, (size,), generator=generator)
        made.append(
            Classification(
                model,
                start,
                Samples(x, y),
                node=node,
                streams=Streams(5),
                batch_size=batch_size,
                num_labels=3,
                augment=augment,
            )
        )
    return made


def view(node: int, round: int) -> View:
    return View(node, round, 8, (), (), 1.0, {}, {})


def received(x: Tensor, round: int) -> Received:
    generator = torch.Generator().manual_seed(round)
    common = 0.1 * torch.randn(x.shape, generator=generator)
    examples = {INPUTS: torch.randn(6, *SHAPE, generator=generator), LABELS: torch.arange(6) % 3}
    return Received({CONTROL: common, MOMENTUM: common, PERTURBATION: common, **examples})


def trained(
    solver: Any, clients: list[Classification], compute: Callable[[Sequence[Callable[[], Any]]], list[Any]]
) -> tuple[list[Tensor], list[float], list[Any]]:
    """Every node's vectors and losses after some rounds without mixing; nodes differ in round and weight too."""
    x = [client.initial() for client in clients]
    states = [solver.init(each, view(node, 0)) for node, each in enumerate(x)]
    for round in range(ROUNDS):
        views = [view(node, round + node % 2) for node in range(len(clients))]
        calls = [
            Call(solver, states[i], x[i], received(x[i], round), 1.0 + i % 3, clients[i].data(views[i].round), views[i])
            for i in range(len(clients))
        ]
        for i, (outcome, error) in enumerate(compute(calls)):
            assert error is None, error
            states[i], update = outcome
            assert update.before is x[i]
            states[i] = solver.after_mix(states[i], x[i], update.x, calls[i].received, views[i])
            x[i] = update.x
    return x, [client.last_loss for client in clients], states


def tensors(state: Any) -> list[Tensor]:
    """All vectors of a state, in order."""
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, tuple) else ()
    return [state] if isinstance(state, Tensor) else [found for part in parts for found in tensors(part)]


def near(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one.float(), other.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("augment", [None, flipped])
@pytest.mark.parametrize("name", [*STACKED, *SINGLE])
def test_every_solver_gives_together_what_it_gives_alone(name: str, augment: Any) -> None:
    solver, service = (STACKED | SINGLE)[name], Service("auto", threads=2)
    expected, losses, states = trained(solver, tasks(augment=augment), one_by_one)
    got, got_losses, got_states = trained(solver, tasks(augment=augment), service.compute)
    service.close()
    assert all(map(near, got, expected))
    assert got_losses == pytest.approx(losses, rel=1e-4, nan_ok=True)
    for one, other in zip(got_states, states, strict=True):
        assert len(tensors(one)) == len(tensors(other))
        assert all(map(near, tensors(one), tensors(other)))
    assert ("stacked" in service.ways) == (name in STACKED)


@dataclass(frozen=True, kw_only=True)
class UnitSteps(LocalSgd):
    """Steps of unit length, by a norm that all rows of a matrix would share."""

    def slope(self, gradient: Gradient, z: Tensor) -> Tensor:
        g = gradient(z)
        return g.div(g.norm() + 1e-12)


@dataclass(frozen=True, kw_only=True)
class UnitRows(LocalSgd):
    """The same, row by row."""

    rows: ClassVar[bool] = True

    def slope(self, gradient: Gradient, z: Tensor) -> Tensor:
        g = gradient(z)
        return g.div(g.norm(dim=-1, keepdim=True) + 1e-12)


@dataclass(frozen=True, kw_only=True)
class LaterUnitSteps(UnitRows):
    """Inherits from what works on rows, and does not."""

    def slope(self, gradient: Gradient, z: Tensor) -> Tensor:
        g = gradient(z)
        return g.div(g.norm() + 1e-12)


@pytest.mark.parametrize(("solver", "stacked"), [(UnitSteps, False), (UnitRows, True), (LaterUnitSteps, False)])
def test_an_own_solver_is_stacked_only_if_it_says_that_it_works_on_rows(solver: type[LocalSgd], stacked: bool) -> None:
    own, service = solver(lr=0.1, epochs=2), Service("auto", threads=1)
    expected, _, _ = trained(own, tasks(), one_by_one)
    got, _, _ = trained(own, tasks(), service.compute)
    assert all(map(near if stacked else torch.equal, got, expected))
    assert ("stacked" in service.ways) == stacked


@dataclass(frozen=True, kw_only=True)
class Backwards(LocalSgd):
    """A solver with a `train` of its own, above a `solve` that it inherits."""

    def train(self, *args: Any) -> tuple[Any, Update]:
        state, update = super().train(*args)
        return state, update._replace(x=2 * update.before - update.x)


def test_a_train_of_ones_own_is_what_is_called() -> None:
    own = Backwards(lr=0.1, epochs=1)
    expected, _, _ = trained(own, tasks(), one_by_one)
    (client, *_), at = tasks(), view(0, 0)
    y = client.initial()
    _, update = LocalSgd(lr=0.1, epochs=1).train(SGD.init(y, at), y, Received(), 1.0, client.data(0), at)
    _, turned = alone(requested(own, SGD.init(y, at), y, Received(), 1.0, client.data(0), at))
    assert torch.equal(turned.x, 2 * y - update.x)
    got, _, _ = trained(own, tasks(), Service("auto", threads=1).compute)
    assert all(map(torch.equal, got, expected))


class Halved(RoundPass):
    """A node's data whose gradients are halved."""

    def steps(self, **length: Any) -> Iterator[Gradient]:
        return (lambda at, g=gradient: g(at) / 2 for gradient in super().steps(**length))


def test_data_with_own_steps_are_not_stacked() -> None:
    (client, *_), at = tasks(), view(0, 0)
    y = client.initial()
    calls = [Call(SGD, SGD.init(y, at), y, Received(), 1.0, Halved(client, 0), at) for _ in range(3)]
    _, expected = calls[0]()
    for (_, got), error in Service("auto", threads=1).compute(calls[1:]):
        assert error is None
        assert torch.equal(got.x, expected.x)


def test_nodes_of_one_group_differ_in_what_they_do() -> None:
    x, _, _ = trained(SGD, tasks(), Service("auto", threads=1).compute)
    assert all(not near(one, other) for i, one in enumerate(x) for other in x[:i])


@pytest.mark.parametrize(
    ("model", "shape", "batch_size"), [("fashion_mlp", (1, 28, 28), 32), ("cifar_cnn", (3, 32, 32), 4)]
)
def test_nodes_on_two_threads_are_exact(model: str, shape: tuple[int, ...], batch_size: int) -> None:
    module, solver = build(model, shape, 3, 0), LocalSgd(lr=0.1, epochs=1, momentum=0.9, rho=0.1)
    sizes = (2 * batch_size, batch_size + 1, batch_size, 3)
    service = Service("exact", threads=2)
    expected = trained(solver, tasks(module, sizes, batch_size, shape), one_by_one)
    got = trained(solver, tasks(build(model, shape, 3, 0), sizes, batch_size, shape), service.compute)
    service.close()
    assert service.ways == {"threads"}
    assert all(map(torch.equal, got[0], expected[0]))
    assert got[1] == expected[1]


def test_small_models_are_exact_and_stay_in_one_thread() -> None:
    service = Service("exact", threads=2)
    expected, got = trained(SGD, tasks(), one_by_one), trained(SGD, tasks(), service.compute)
    assert service.ways == {"alone"}
    assert all(map(torch.equal, got[0], expected[0]))


class Mixes(nn.Module):
    """Subtracts the mean of the minibatch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        out: Tensor = self.linear(x - x.mean(0))
        return out


def test_models_that_draw_or_mix_examples_are_not_stacked() -> None:
    x, y = tasks()[0].samples.x[:9], tasks()[0].samples.y[:9]
    dropout = FlatModel(nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 3)))
    mixes, plain = FlatModel(Mixes()), FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.Tanh()))
    before = torch.get_rng_state()
    assert not StackedModel(dropout).agrees(dropout.flat(), x, y)
    assert not StackedModel(mixes).agrees(mixes.flat(), x, y)
    assert not StackedModel(mixes).agrees(mixes.flat(), x[:1], y[:1])
    assert StackedModel(plain).agrees(plain.flat(), x, y)
    assert dropout.draws(dropout.flat(), x)
    assert not plain.draws(plain.flat(), x)
    assert torch.equal(torch.get_rng_state(), before)


def test_large_models_that_draw_at_random_stay_in_one_thread() -> None:
    def clients() -> list[Classification]:
        torch.manual_seed(1)
        wide = nn.Linear(16, 20_000), nn.Dropout(0.5), nn.Linear(20_000, 3)
        return tasks(nn.Sequential(nn.Flatten(), *wide), (8, 9))

    service = Service("exact", threads=2)
    expected, _, _ = trained(SGD, clients(), one_by_one)
    got, _, _ = trained(SGD, clients(), service.compute)
    assert service.ways == {"alone"}
    assert all(map(torch.equal, got, expected))


@pytest.mark.parametrize(("model", "params"), [("convnet", {"width": 4}), ("resnet18_gn", {})])
def test_stacked_gradients_of_a_network_are_the_single_ones(model: str, params: dict[str, Any]) -> None:
    flat = FlatModel(build(model, (3, 16, 16), 3, 0, **params))
    x, y = torch.randn(5, 3, 16, 16), torch.arange(5) % 3
    assert StackedModel(flat).agrees(flat.flat(), x, y)


def test_an_error_is_its_own_nodes_alone() -> None:
    clients = tasks()
    clients[3].samples.x[5] = torch.inf
    x = [client.initial() for client in clients]
    calls = [
        Call(SGD, SGD.init(x[i], view(i, 0)), x[i], Received(), 1.0, clients[i].data(0), view(i, 0)) for i in range(8)
    ]
    alone = one_by_one([Call(**vars(call) | {"data": clients[i].data(0)}) for i, call in enumerate(calls)])
    together = Service("auto", threads=2).compute(calls)
    errors = [error for _, error in together]
    assert [error is None for error in errors] == [i != 3 for i in range(8)]
    assert isinstance(errors[3], NotFiniteError)
    assert isinstance(alone[3][1], NotFiniteError)
    assert errors[3].step == alone[3][1].step
    for i in {*range(8)} - {3}:
        assert near(together[i][0][1].x, alone[i][0][1].x)


def test_calls_that_cannot_be_divided_are_just_called() -> None:
    def fails() -> None:
        raise ValueError("no")

    (one, error), (_, raised) = Service("auto", threads=2).compute([lambda: 3, fails])
    assert (one, error) == (3, None)
    assert str(raised) == "no"
