"""One model evaluated at many flat vectors at once, with the gradient of each node's own loss."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.nn.functional import cross_entropy

from netdfl.training.drawing import aside
from netdfl.training.flat import FlatModel

NEAR = 1e-3


class StackedModel:
    """The gradients of `model` for n nodes in one computation: by formula for a perceptron, else by `vmap`."""

    def __init__(self, model: FlatModel) -> None:
        """Prepare the computation of `model` for many nodes at once."""
        self.model = model
        self._bytes_per_row = 0
        self._device = model.parameters[0].device
        self._each = vmap(grad_and_value(self._loss))

    def _loss(self, at: Tensor, x: Tensor, y: Tensor, share: Tensor) -> Tensor:
        return (cross_entropy(self.model.scores(at, x), y, reduction="none") * share).sum()

    def slope(self, at: Tensor, x: Tensor, y: Tensor, share: Tensor, out: Tensor) -> Tensor:
        """Write the gradients at `at`, shape (n, d), into `out`; return the losses of the n nodes, shape (n,).

        `x` is (n, B, ...), `y` (n, B); `share`, (n, B), is the weight of an example: 1 / its minibatch's size, or 0 for
        padding.
        """
        if self.model.perceptron is not None:
            return self.model.perceptron.slope(at, x, y, out, share)
        slopes, losses = self._each(at, x, y, share)
        out.copy_(slopes)
        return torch.as_tensor(losses)

    def agrees(self, at: Tensor, x: Tensor, y: Tensor) -> bool:
        """Return whether gradients computed for several nodes at once equal the gradients of single nodes.

        Padded minibatches are compared, too. False for a model that draws at random, or that mixes the examples of a
        minibatch.
        """
        self._device = at.device
        if at.is_cuda:
            torch.cuda.reset_peak_memory_stats(at.device)
            before = torch.cuda.memory_allocated(at.device)
        agrees = self._agrees(at, *_varied(x, y))
        if at.is_cuda:
            self._bytes_per_row = (torch.cuda.max_memory_allocated(at.device) - before) // 2 + 1
        return agrees

    def rows_that_fit(self) -> int:
        """Return how many nodes fit on the GPU at once, estimated from the memory that `agrees` used."""
        free, _ = torch.cuda.mem_get_info(self._device)
        return max(1, free // (2 * self._bytes_per_row))

    def _agrees(self, at: Tensor, x: Tensor, y: Tensor) -> bool:
        half = max(1, len(y) // 2)
        counts = torch.tensor([len(y), half], device=y.device)[:, None]
        share = (torch.arange(len(y), device=y.device) < counts) / counts
        ours, single = torch.empty_like(at.expand(2, -1)), torch.empty_like(at)
        with aside():
            try:
                both = at.expand(2, -1).contiguous(), x.expand(2, *x.shape), y.expand(2, *y.shape)
                self.slope(*both, share.to(at), ours)
            except (RuntimeError, ValueError):
                return False
            for row, size in zip(ours, (len(y), half), strict=True):
                self.model.slope(at, x[:size], y[:size], single)
                if not float((row - single).norm()) <= NEAR * float(single.norm()):
                    return False
        return True


def _varied(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return at least four different examples, because mixing of examples shows only where they differ."""
    chosen = torch.arange(max(4, len(y)), device=y.device) % len(y)
    scale = torch.linspace(0.5, 1.5, len(chosen), device=x.device, dtype=x.dtype)
    return x[chosen] * scale.view(-1, *(1,) * (x.dim() - 1)), y[chosen]
