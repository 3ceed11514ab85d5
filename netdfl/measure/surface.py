"""The loss of a model as a function of its flat vector: values, gradients, products with the Hessian."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from netdfl.host.training_problem import TrainingProblem
from netdfl.training.data.examples import Examples, Tree, in_batches
from netdfl.training.models.buffers import applied


class LossSurface:
    """The mean loss of a module over some examples, as a function of its trainable parameters joined to one vector.

    Vectors have shape (d,) and are float64; the module computes in its own type, in evaluation mode.
    """

    def __init__(self, module: nn.Module, problem: TrainingProblem, examples: Examples, batch: int = 1024) -> None:
        """Use `module` itself, not a copy; `problem` has its loss. `batch` examples are computed at a time."""
        self.module = module.eval()
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.sizes = [p.numel() for p in self.parameters]
        self.dim = sum(self.sizes)
        self._problem, self._examples, self._batch = problem, examples, batch

    @property
    def at(self) -> Tensor:
        """A copy of the module's parameters as one vector."""
        return flattened(p.detach() for p in self.parameters)

    @contextmanager
    def moved_to(self, at: Tensor) -> Iterator[None]:
        """Set the parameters to `at` inside the context, and restore them at its end."""
        before = self.at
        self._set(at)
        try:
            yield
        finally:
            self._set(before)

    def value(self, at: Tensor) -> float:
        """Return the loss at the vector `at`."""
        with self.moved_to(at), torch.no_grad():
            return sum(float(self._loss(x, y)) * share for x, y, share in self.batches())

    def gradient(self) -> Tensor:
        """Return the gradient at the module's parameters."""
        total = torch.zeros(self.dim, dtype=torch.float64)
        for x, y, share in self.batches():
            total += share * flattened(torch.autograd.grad(self._loss(x, y), self.parameters, materialize_grads=True))
        return total

    def hessian_times(self, direction: Tensor) -> Tensor:
        """Return the product of the Hessian at the module's parameters with a vector."""
        total = torch.zeros(self.dim, dtype=torch.float64)
        along = [piece.view_as(p).to(p) for piece, p in zip(direction.split(self.sizes), self.parameters, strict=True)]
        for x, y, share in self.batches():
            slopes = torch.autograd.grad(
                self._loss(x, y), self.parameters, create_graph=True, materialize_grads=True, allow_unused=True
            )
            inner = sum((slope * part).sum() for slope, part in zip(slopes, along, strict=True))
            if isinstance(inner, Tensor) and inner.requires_grad:
                bent = torch.autograd.grad(inner, self.parameters, materialize_grads=True, allow_unused=True)
                total += share * flattened(bent)
        return total

    def filters(self, at: Tensor) -> Iterator[Tensor]:
        """Yield views of `at`, one row per filter, shape (filters, weights); a bias is a single row.

        A filter is the weights of one output: a row of a linear layer, a kernel of a convolution.
        """
        for piece, p in zip(at.split(self.sizes), self.parameters, strict=True):
            yield piece.view(len(p), -1) if p.ndim > 1 else piece.view(1, -1)

    def _set(self, at: Tensor) -> None:
        with torch.no_grad():
            for piece, p in zip(at.split(self.sizes), self.parameters, strict=True):
                p.copy_(piece.view_as(p))

    def _loss(self, x: Tree, y: Tree) -> Tensor:
        return self._problem.model.loss(applied(self.module, x), y)

    def batches(self) -> Iterator[tuple[Tree, Tree, float]]:
        """Yield inputs and targets of a batch, and its share of all examples."""
        num = len(self._examples)
        begun = 0
        for x, y in in_batches(self._examples, self._batch):
            size = min(self._batch, num - begun)
            begun += size
            yield x, y, size / num


def flattened(tensors: object) -> Tensor:
    """Return tensors joined to one float64 vector."""
    return torch.cat([tensor.reshape(-1).double() for tensor in tensors])  # type: ignore[attr-defined]
