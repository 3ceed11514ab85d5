"""Toy problems with known solutions: pure consensus, and quadratics with different optima."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from netdfl.compression.vector import Vector, finite, vector
from netdfl.core.errors import NotFiniteError
from netdfl.core.rng import Key, Streams
from netdfl.core.types import NodeId
from netdfl.training.base import Gradient, LocalData

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Centers:
    """The loss of examples that are centers of quadratics: mean_j 1/2 (x - c_j)' diag(h) (x - c_j)."""

    curvature: Tensor
    streams: Streams
    num_labels = 1

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of a center, which has as many coordinates as there are parameters."""
        return tuple(self.curvature.shape)

    def loss(self, at: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean over the examples of the quadratics around them; labels are ignored."""
        return 0.5 * (self.curvature * (at - x).square()).sum(1).mean()

    def drawing(self, *key: Key) -> AbstractContextManager[None]:
        """Return a context without effect, because this loss draws no random numbers; `key` is ignored."""
        return nullcontext()


class Quadratic:
    """The objective f_i(x) = 1/2 (x - c_i)' diag(h_i) (x - c_i) of node i, with optional gradient noise.

    The optimum of the mean is sum h_i c_i / sum h_i. With h_i = 0 everywhere there is no gradient, and the problem is
    pure consensus on the starting vectors.
    """

    num_samples = 1

    def __init__(
        self, center: Tensor, start: Tensor, curvature: Tensor, *, node: NodeId, streams: Streams, noise: float = 0.0
    ) -> None:
        """Store tensors of shape (d,); `noise` is the standard deviation of gradient noise per coordinate."""
        self.center, self.start, self.curvature = center, start, curvature
        self.dim = center.numel()
        self.node, self.streams, self.noise = node, streams, noise
        self.last_loss = math.nan
        self.pulls = bool(noise) or bool((curvature != 0).any())

    @cached_property
    def objective(self) -> Centers:
        """The quadratic loss with this node's curvature, as a function of any centers."""
        return Centers(self.curvature, self.streams)

    def initial(self) -> Tensor:
        """Return the starting vector itself."""
        return self.start

    def data(self, round: int) -> LocalData:
        """Return the quadratic for one round, with gradient noise keyed by (node, round)."""
        return _QuadraticRound(self, round)


class _QuadraticRound:
    def __init__(self, task: Quadratic, round: int) -> None:
        self.task = task
        self.objective = task.objective
        self.num_samples = task.num_samples
        self.shapes = (tuple(task.center.shape),)
        self.rng = task.streams.rng("noise", task.node, round) if task.noise else None

    def rests(self, at: Tensor) -> bool:
        """Return whether steps leave the vector `at` unchanged, as there is no gradient; if so, set the loss to 0."""
        if self.task.pulls or not finite(at):
            return False
        self.task.last_loss = 0.0
        return True

    def steps(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Gradient]:
        """Yield one gradient per step; an epoch is one step."""
        for step in range(steps if steps is not None else epochs or 0):
            yield self._gradient(step)

    def _gradient(self, step: int) -> Gradient:
        task = self.task
        noise = None if self.rng is None else _like(self.rng.standard_normal(task.dim), task.center)

        def gradient(at: Tensor) -> Tensor:
            exact, task.last_loss = self._slope(at)
            if not math.isfinite(task.last_loss):
                raise NotFiniteError(f"the training loss became {task.last_loss}", step)
            return exact if noise is None else exact.add_(noise, alpha=task.noise)

        return gradient

    def loss(self, at: Tensor) -> float:
        """Return the value of the quadratic at `at`."""
        return self._slope(at)[1]

    def _slope(self, at: Tensor) -> tuple[Tensor, float]:
        """Return the gradient and the value at `at`."""
        away = at - self.task.center
        slope = self.task.curvature * away
        return slope, 0.5 * float((slope * away).sum())  # MKL's `dot` adds in an order that depends on the CPU


def still(start: Tensor, node: NodeId, streams: Streams) -> Quadratic:
    """Return a quadratic whose gradient is 0, for pure consensus on the starting vectors."""
    nowhere = start.new_zeros(start.shape)
    return Quadratic(nowhere, start, nowhere, node=node, streams=streams)


def _like(drawn: NDArray[np.float64], like: Tensor) -> Tensor:
    import torch

    return torch.from_numpy(drawn).to(like.dtype)


def optimum(tasks: Sequence[Quadratic]) -> Tensor:
    """Return the minimum of the mean of quadratics, shape (d,); without gradients, the mean of the starting vectors."""
    if isinstance(tasks[0].start, Vector):  # which nothing pulls
        return vector(np.mean([task.start for task in tasks], axis=0))
    import torch

    curvature = torch.stack([task.curvature for task in tasks])
    pulled = (curvature * torch.stack([task.center for task in tasks])).sum(0) / curvature.sum(0)
    rest = torch.stack([task.start for task in tasks]).mean(0)
    return torch.where(curvature.sum(0) > 0, pulled, rest)
