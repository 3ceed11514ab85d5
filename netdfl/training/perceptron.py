"""The gradient of a perceptron by its formula, computed in place, for one node or many at once.

With h_0 = x, z_k = h_(k-1) W_k' + b_k, h_k = max(z_k, 0), p = softmax(z_K), cross-entropy of shares s:

    D_K = s (p - y);   dW_k = D_k' h_(k-1),  db_k = sum D_k;   D_(k-1) = (D_k W_k) where h_(k-1) > 0

Autograd computes the same, then copies each layer's part into the flat vector, and computes the unused D_0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

Layer = tuple[Tensor, Tensor]


class Perceptron:
    """Linear layers with ReLU between them, on flat vectors of shape (d,), or (n, d) for n nodes at once."""

    def __init__(self, widths: Sequence[int]) -> None:
        """Build the layers from `widths`: the input's, each hidden layer's, and the output's."""
        self.shapes = [(outputs, inputs) for inputs, outputs in pairwise(widths)]
        self._sizes = [size for outputs, inputs in self.shapes for size in (outputs * inputs, outputs)]

    @classmethod
    def of(cls, module: nn.Module) -> Perceptron | None:
        """Return a module as a perceptron; None if it is not one.

        A module with hooks, or with a parameter that is used twice, does not count as a perceptron.
        """
        if type(module) is not nn.Sequential or any(has_hooks(part) for part in module.modules()):
            return None
        parts = [part for part in module if not _flattens(part)]
        linear = parts[::2]
        if not linear or not all(map(_is_linear, linear)) or any(type(part) is not nn.ReLU for part in parts[1::2]):
            return None
        if len(parts) % 2 == 0 or any(map(_flattens, list(module)[1:])):
            return None
        if len({id(p) for part in linear for p in part.parameters()}) < 2 * len(linear):
            return None  # the formula has a place in the vector for each layer's own weight and bias
        return cls([linear[0].in_features, *(part.out_features for part in linear)])  # type: ignore[list-item]

    def slope(self, at: Tensor, x: Tensor, y: Tensor, out: Tensor, share: Tensor | None = None) -> Tensor:
        """Write the gradient of the mean cross-entropy at `at` into `out`; return the loss.

        For one node `at` and `out` have shape (d,), `x` (B, ...), `y` (B,), the loss (). For n nodes each has a
        dimension of n before these. `share` is the weight of each example, shaped like `y`; by default 1 / B.
        """
        many = at.dim() == 2
        add, multiply = (torch.baddbmm, torch.bmm) if many else (torch.addmm, torch.mm)
        layers, inputs = list(self._layers(at)), [x.flatten(1 + many).to(at.dtype)]
        for weight, bias in layers:
            inputs.append(add(bias.unsqueeze(-2), inputs[-1], weight.mT))
            if len(inputs) <= len(layers):
                inputs[-1].relu_()
        counts = 1.0 / y.shape[-1] if share is None else share.unsqueeze(-1)
        loss, behind = _cross_entropy(inputs.pop(), y.unsqueeze(-1), counts)
        for k, (weight, bias) in reversed(list(enumerate(self._layers(out)))):
            multiply(behind.mT, inputs[k], out=weight)
            torch.sum(behind, -2, out=bias)
            if k:
                behind = torch.ops.aten.threshold_backward(multiply(behind, layers[k][0]), inputs[k], 0)
        return loss

    def _layers(self, flat: Tensor) -> Iterator[Layer]:
        """Yield each layer's weight, (..., outputs, inputs), and bias, (..., outputs), as views of `flat`."""
        pieces = flat.split_with_sizes(self._sizes, -1)
        for shape, weight, bias in zip(self.shapes, pieces[::2], pieces[1::2], strict=True):
            yield weight.view(*weight.shape[:-1], *shape), bias


def _cross_entropy(scores: Tensor, y: Tensor, counts: Tensor | float) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy and its gradient with respect to the scores, which are overwritten.

    The gradient is counts (p - y), with p = softmax(scores) and y one-hot; `counts` is the weight of each example. The
    formula is written out because log_softmax is slow where there are few classes.
    """
    scores.sub_(scores.amax(-1, keepdim=True))
    chosen = scores.gather(-1, y)
    hot = (y == torch.arange(scores.shape[-1], device=y.device)).to(scores.dtype)
    p = scores.exp_()
    total = p.sum(-1, keepdim=True)
    loss = ((total.log() - chosen) * counts).sum((-2, -1))
    return loss, p.div_(total).sub_(hot).mul_(counts)


def has_hooks(module: nn.Module) -> bool:
    """Return whether the module has hooks on its passes or gradients, or a replaced `forward`."""
    own = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(own) or "forward" in vars(module) or any(p._backward_hooks for p in module.parameters(recurse=False))


def _flattens(part: nn.Module) -> bool:
    return type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1)


def _is_linear(part: nn.Module) -> bool:
    return type(part) is nn.Linear and part.bias is not None and all(p.requires_grad for p in part.parameters())
