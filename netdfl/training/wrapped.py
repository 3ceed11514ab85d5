"""A node's data seen through a wrapper around its gradients: how SAM's other ascents reach any solver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from netdfl.training.base import Gradient, LocalData, Objective


@dataclass(frozen=True)
class Wrapped:
    """`data` with `wrap` around the gradient of every local step. See `LocalData`."""

    data: LocalData
    wrap: Callable[[Gradient], Gradient]

    @property
    def objective(self) -> Objective:
        """The data's own."""
        return self.data.objective

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The data's own."""
        return self.data.shapes

    def steps(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Gradient]:
        """The data's steps, wrapped."""
        return map(self.wrap, self.data.steps(epochs=epochs, steps=steps))

    def loss(self, at: Tensor) -> float:
        """The data's own."""
        return self.data.loss(at)
