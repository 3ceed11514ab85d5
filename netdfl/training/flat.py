"""A module whose parameters are views of one flat vector, so that one vector is the whole model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from netdfl.training.drawing import seeded
from netdfl.training.perceptron import Perceptron

_COPYING = threading.Lock()


class BoundModule:
    """A module, the vector that its parameters are views of at present, and the mode that it is in."""

    def __init__(self, module: nn.Module) -> None:
        """Bound to nothing yet, and in no mode for sure."""
        self.module = module
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.at: Tensor | None = None
        self.training: bool | None = None

    def turn(self, *, training: bool) -> nn.Module:
        """Put the module, all of it, into training or evaluation mode."""
        if self.training != training:
            self.module.train(training)
            self.training = training
        return self.module


class FlatModel:
    """Runs a module at any flat parameter vector, without copying the vector.

    The module's parameters are pointed at views of the vector in use; gradients come back as one
    flat vector. Many nodes of one process can share a `FlatModel`, each with a vector of its own, and
    so can threads: each that comes after the first points the parameters of a copy of the module.
    """

    def __init__(self, module: nn.Module) -> None:
        """Take over `module`; its parameters must all share one dtype and device."""
        self.module = module
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.names, self.parameters = list(named), list(named.values())
        self.dim = sum(p.numel() for p in self.parameters)
        self.shapes = tuple(tuple(p.shape) for p in self.parameters)
        self._sizes = [p.numel() for p in self.parameters]
        self.perceptron = Perceptron.of(module)
        self._draws = None if self.perceptron is None else False
        self._bound: dict[int, BoundModule] = {}

    def flat(self) -> Tensor:
        """The current parameters as one fresh vector of shape (d,)."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters])

    def bind(self, at: Tensor, *, training: bool) -> nn.Module:
        """Point the parameters at views of `at`, shape (d,), and return the module in that mode: this thread's own."""
        bound = self._of_this_thread()
        if bound.at is not at:
            for parameter, piece, shape in zip(bound.parameters, at.split(self._sizes), self.shapes, strict=True):
                parameter.data = piece.view(shape)
            bound.at = at
        return bound.turn(training=training)

    def _of_this_thread(self) -> BoundModule:
        bound = self._bound.get(threading.get_ident())
        if bound is None:
            with _COPYING:
                bound = BoundModule(deepcopy(self.module) if self._bound else self.module)
                self._bound[threading.get_ident()] = bound
        return bound

    def scores(self, at: Tensor, x: Tensor) -> Tensor:
        """What the module gives in training for inputs `x` at `at`; differentiable by both, any number of times."""
        pieces = zip(self.names, at.split(self._sizes), self.shapes, strict=True)
        vectors = {name: piece.view(shape) for name, piece, shape in pieces}
        scores: Tensor = functional_call(self._of_this_thread().turn(training=True), vectors, (x,))
        return scores

    def gradient(self, loss: Tensor, out: Tensor) -> Tensor:
        """Write the gradient of `loss` by the bound vector into `out`, shape (d,)."""
        grads = torch.autograd.grad(loss, self._of_this_thread().parameters)
        return torch.cat([g.reshape(-1) for g in grads], out=out)

    def slope(self, at: Tensor, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """Write the gradient of the mean cross-entropy at `at` into `out`, shape (d,); return the loss."""
        if self.perceptron is not None:
            return self.perceptron.slope(at, x, y, out)
        loss = cross_entropy(self.bind(at, training=True)(x), y)
        self.gradient(loss, out)
        return loss.detach()

    @contextmanager
    def drawing(self, seed: int) -> Iterator[None]:
        """Let the module draw as `seed` says, where it draws at random: equal masks for every call within."""
        if self._draws is False:
            yield
            return
        with seeded(seed, self.parameters[0].device) as drawn:
            yield
            self._draws = self._draws or drawn()

    def draws(self, at: Tensor, x: Tensor) -> bool:
        """Whether the module in training takes numbers from torch's streams, as dropout does; tried once, on `x`."""
        if self._draws is None:
            with self.drawing(0), torch.no_grad():
                self.bind(at, training=True)(x)
        return bool(self._draws)
