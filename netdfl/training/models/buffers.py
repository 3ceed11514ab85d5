"""Running statistics of a model as one vector: buffers that are means, updated by training passes.

These are the statistics of torch's normalizing layers, and a buffer of real numbers whose every coordinate b becomes c
b + s in a forward pass, where 0 < c <= 1, and s depends only on the batch: for such a buffer, updating the mean of
several nodes' values gives the mean of their updated values. The directions of spectral norm are no means, nor are
buffers that each pass overwrites: each node keeps its own (`netdfl.training.models.state`).

The scenario's `task.model.buffers` decides on running statistics:

    average    they are coordinates of the model's vector: sent, averaged, kept and evaluated with it
    local      each node keeps its own (FedBN); the average model is evaluated with their mean
    reset      no node keeps any; a model is evaluated with statistics taken anew from training examples
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from netdfl.training.data.examples import Tree, mapped
from netdfl.training.drawing import aside
from netdfl.training.models.copying import copied
from netdfl.training.models.inputs import as_taken

BufferPolicy: TypeAlias = Literal["average", "local", "reset"]


def applied(module: nn.Module, x: Tree) -> Tree:
    """Return the module's outputs for a minibatch `x`: one tensor, several inputs by position, or several by name."""
    x = as_taken(module, x)
    if isinstance(x, Tensor):
        return module(x)
    return module(**x) if isinstance(x, dict) else module(*x)


def means(module: nn.Module, x: Tree) -> list[str]:
    """Return the names of the running statistics, found by training passes of copies of `module` over `x`."""
    start = dict(module.named_buffers())
    if not start:
        return []
    found = _moved(module, x, {})
    changed = [name for name, value in found.items() if not torch.equal(value, start[name])]
    normal = set(_of_normalizing(module))
    unsure = [name for name in changed if name not in normal and start[name].is_floating_point()]
    for kind in {name.rpartition(".")[2] for name in unsure}:  # a mean that goes by another one is one at a time
        alike = {name: start[name] for name in unsure if name.rpartition(".")[2] == kind}
        once, twice = (_moved(module, x, {n: value + by for n, value in alike.items()}) for by in (1.0, 2.0))
        normal |= {name for name in alike if _is_mean(found[name], once[name], twice[name])}
    return [name for name in changed if name in normal]


def _of_normalizing(module: nn.Module) -> Iterator[str]:
    for place, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._NormBase):
            yield from (f"{place}.{name}".lstrip(".") for name, _ in part.named_buffers(recurse=False))


@torch.no_grad()
def _moved(module: nn.Module, x: Tree, begin: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the buffers after a training pass of a copy whose buffers start at the values `begin`."""
    copy = copied(module)
    known = dict(copy.named_buffers())
    for name, value in begin.items():
        known[name].copy_(value)
    with aside():
        torch.default_generator.manual_seed(0)
        applied(copy.train(), mapped(x, Tensor.clone))
    return {name: buffer for name, buffer in copy.named_buffers() if name in known}


def _is_mean(zero: Tensor, one: Tensor, two: Tensor) -> bool:
    """Return whether a buffer is a running mean, given its values after a pass.

    The passes start at the buffer's initial value plus 0, plus 1 and plus 2.

    Its update must be linear, with equal slopes above 0 and at most 1.
    """
    c, next_c = (one - zero).double(), (two - one).double()
    return bool(torch.isfinite(zero).all() and ((c > 1e-4) & (c < 1 + 1e-4) & ((c - next_c).abs() < 1e-4)).all())


class Buffers:
    """Selected buffers of a module, which can be read into one vector and written from one."""

    def __init__(self, module: nn.Module, names: Iterable[str]) -> None:
        """Select the buffers with these names, in this order."""
        self.names = tuple(names)
        known = dict(module.named_buffers())
        self._sizes = [known[name].numel() for name in self.names]
        self.size = sum(self._sizes)
        doubles = any(known[name].dtype == torch.float64 for name in self.names)
        self._dtype = torch.float64 if doubles else torch.float32
        self.start = self.read(module)

    def read(self, module: nn.Module) -> Tensor:
        """Return the buffers as a fresh vector of shape (b,)."""
        known = dict(module.named_buffers())
        pieces = [known[name].detach().reshape(-1).to(self._dtype) for name in self.names]
        return torch.cat(pieces) if pieces else torch.empty(0)

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Split a vector of shape (b,) into the single buffers, by their names."""
        return dict(zip(self.names, vector.split(self._sizes), strict=True))

    def joined(self, kept: Mapping[str, Tensor]) -> Tensor:
        """Return the buffers in `kept` as a vector of shape (b,); if one is missing there, the initial vector."""
        if not set(self.names) <= set(kept):
            return self.start
        return torch.cat([kept[name] for name in self.names])

    @torch.no_grad()
    def write(self, module: nn.Module, vector: Tensor) -> None:
        """Write a vector of shape (b,) to the module's buffers.

        A negative variance, which some methods produce, becomes 0; counts are rounded.
        """
        known, first = dict(module.named_buffers()), 0
        for name in self.names:
            buffer = known[name]
            piece = vector[first : first + buffer.numel()].view(buffer.shape)
            first += buffer.numel()
            if name.rpartition(".")[2] == "running_var":
                piece = piece.clamp(min=0)
            buffer.copy_(piece if buffer.is_floating_point() else piece.round())


@torch.no_grad()
def estimate(module: nn.Module, batches: Iterable[Tree]) -> None:
    """Set the statistics of normalizing layers to the mean over `batches`, each with equal weight."""
    layers = [each for each in module.modules() if isinstance(each, nn.modules.batchnorm._NormBase)]
    momenta = [layer.momentum for layer in layers]
    module.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # what comes counts the same
        layer.train()
    try:
        for x in batches:
            applied(module, x)
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
    module.eval()
