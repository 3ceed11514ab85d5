"""A module whose parameters are views of one flat vector, so that one vector is the whole model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call


class FlatModel:
    """Runs a module at any flat parameter vector, without copying the vector.

    The module's parameters are pointed at views of the vector in use; gradients come back as one
    flat vector. Many nodes of one process can share a `FlatModel`, each with a vector of its own.
    """

    def __init__(self, module: nn.Module) -> None:
        """Take over `module`; its parameters must all share one dtype and device."""
        self.module = module
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.names, self.parameters = list(named), list(named.values())
        self.dim = sum(p.numel() for p in self.parameters)
        self.shapes = tuple(tuple(p.shape) for p in self.parameters)
        self._sizes = [p.numel() for p in self.parameters]
        self._keep: Tensor | None = None

    def flat(self) -> Tensor:
        """The current parameters as one fresh vector of shape (d,)."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters])

    def bind(self, at: Tensor) -> nn.Module:
        """Point the parameters at views of `at`, shape (d,), and return the module."""
        if self._keep is not at:
            for parameter, piece, shape in zip(self.parameters, at.split(self._sizes), self.shapes, strict=True):
                parameter.data = piece.view(shape)
            self._keep = at
        return self.module

    def scores(self, at: Tensor, x: Tensor) -> Tensor:
        """The module's output for inputs `x` at the vector `at`; differentiable by both, any number of times."""
        pieces = zip(self.names, at.split(self._sizes), self.shapes, strict=True)
        scores: Tensor = functional_call(self.module, {name: piece.view(shape) for name, piece, shape in pieces}, (x,))
        return scores

    def gradient(self, loss: Tensor, out: Tensor) -> Tensor:
        """Write the gradient of `loss` by the bound vector into `out`, shape (d,)."""
        grads = torch.autograd.grad(loss, self.parameters)
        return torch.cat([g.reshape(-1) for g in grads], out=out)
