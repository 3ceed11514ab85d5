"""Parts that draw at random in every place where a user's code runs, from any of the three generators."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

import netdfl

DRAW: dict[str, Callable[[], float]] = {
    "torch": lambda: float(torch.randn(1)),
    "numpy": lambda: float(np.random.normal()),
    "python": lambda: random.gauss(0, 1),
}
PLACES = (
    "examples",
    "tests",
    "data",
    "model",
    "forward",
    "late",
    "judged",
    "loss",
    "augmentation",
    "metric",
    "buffers",
    "solver",
    "after",
    "mixing",
    "compression",
    "wait",
)
"""Where noise is drawn; `late`: in the forward of later steps alone; `judged`: in evaluation too."""


def noise(place: str, where: str, source: str) -> float:
    """A draw, where `place` is among those that are asked for; of all sources one after the other by `every`.

    Its attribute `drawn` has them all.
    """
    if place not in where.split():
        return 0.0
    drawn = [draw() for name, draw in DRAW.items() if source in (name, "every")]
    noise.drawn.setdefault(place, []).extend(drawn)  # type: ignore[attr-defined]
    return sum(drawn)


noise.drawn = {}  # type: ignore[attr-defined]


class Examples(Dataset[tuple[Tensor, int]]):
    """The same twelve examples for every client."""

    def __init__(self, place: str, where: str, source: str) -> None:
        self.x = torch.linspace(-1, 1, 48).reshape(12, 4) + 0.1 * noise("data", where, source)
        self.place, self.where, self.source = place, where, source

    def __len__(self) -> int:
        return 12

    def __getitem__(self, k: int) -> tuple[Tensor, int]:
        return self.x[k] + 0.1 * noise(self.place, self.where, self.source), k % 3


def data(*, where: str, source: str, clients: int = 3) -> netdfl.Datasets:
    return netdfl.Datasets(
        clients=[Examples("examples", where, source) for _ in range(clients)], test=Examples("tests", where, source)
    )


class Net(nn.Module):
    def __init__(self, where: str, source: str) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)
        if "buffers" in where.split():
            self.norm = nn.BatchNorm1d(5)
        self.where, self.source, self.steps = where, source, 0
        with torch.no_grad():
            self.first.bias += 0.1 * noise("model", where, source)

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        x = self.first(x + 0.1 * noise("judged", self.where, self.source))
        if self.training:
            x = x + 0.1 * noise("forward", self.where, self.source)
            if float(x.detach().sum()) > 0:  # in some steps, in others not
                x = x + 0.1 * noise("late", self.where, self.source)
        return self.last(torch.tanh(self.norm(x) if hasattr(self, "norm") else x))


def net(*, where: str, source: str) -> nn.Module:
    return Net(where, source)


def loss(outputs: Tensor, targets: Tensor, /, *, where: str, source: str) -> Tensor:
    return cross_entropy(outputs, targets) * (1 + 0.1 * noise("loss", where, source))


def augmentation(x: Tensor, rng: Any, /, *, where: str, source: str) -> Tensor:
    return x + 0.1 * noise("augmentation", where, source)


def metric(outputs: Tensor, targets: Tensor, /, *, where: str, source: str) -> float:
    return float(outputs.detach().mean()) + 0.1 * noise("metric", where, source)


def solver(exchange: Any, /, *, lr: float = 0.1, where: str = "", source: str = "numpy") -> Any:
    """Gossip, whose local solver adds noise to what it has trained, its mixing to what it mixed; its wait draws too."""
    from dataclasses import fields, replace

    from netdfl.algorithms.catalog import ALGORITHMS
    from netdfl.algorithms.exchange import WaitPolicy
    from netdfl.training.sgd import LocalSgd

    class Waiting(WaitPolicy):
        def count(self, num_sources: int) -> int:
            noise("wait", where, source)
            return super().count(num_sources)

    class Mixing:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def mix(self, state: Any, update: Any, *more: Any) -> Any:
            mixed = self.inner.mix(state, update, *more)
            x = mixed.update.x + 0.01 * noise("mixing", where, source)
            return mixed._replace(update=mixed.update._replace(x=x))

    class Noisy(LocalSgd):
        rows = False

        def after_mix(self, state: Any, before: Tensor, after: Tensor, *more: Any) -> Any:
            noise("after", where, source)
            return super().after_mix(state, before, after, *more)

        def solve(self, state: Any, *more: Any) -> Any:
            state, update = yield from super().solve(state, *more)
            return state, update._replace(x=update.x + 0.01 * noise("solver", where, source))

    made = ALGORITHMS["dfedavg"].build(exchange, lr=lr, local_epochs=1)
    wait = Waiting(**{field.name: getattr(made.wait, field.name) for field in fields(WaitPolicy)})
    return replace(made, local=Noisy(lr=lr, epochs=1), mixing=Mixing(made.mixing), wait=wait)


def compression(*, where: str, source: str) -> Any:
    """Whole vectors with noise."""
    from netdfl.compression.base import Compressor, EncodedVector
    from netdfl.compression.identity import IdentityCompressor

    class Noisy(Compressor):
        def variance(self, dim: int) -> float:
            return 1e-6

        def compress(self, x: Tensor, rng: Any) -> EncodedVector:
            return IdentityCompressor().compress(x + 1e-4 * noise("compression", where, source), rng)

        def decompress(self, encoded: EncodedVector) -> Tensor:
            return IdentityCompressor().decompress(encoded)

    return Noisy()
