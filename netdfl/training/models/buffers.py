"""Running statistics of a model: the buffers that a forward pass in training mode changes, as one vector.

What becomes of them is the scenario's `task.model.buffers`:

    average    they are coordinates of the model's vector: sent, averaged, kept and judged with it
    local      each node keeps its own (FedBN); the average model is judged with their mean
    reset      nobody keeps any; a model is judged with statistics taken anew from training examples
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from netdfl.training.data.examples import Tree
from netdfl.training.models.inputs import as_taken

BufferPolicy: TypeAlias = Literal["average", "local", "reset"]


def applied(module: nn.Module, x: Tree) -> Tree:
    """What the module gives for inputs: a tensor, several by their order, or by their names."""
    x = as_taken(module, x)
    if isinstance(x, Tensor):
        return module(x)
    return module(**x) if isinstance(x, dict) else module(*x)


def changing(module: nn.Module, x: Tree) -> list[str]:
    """The names of the buffers that a forward pass on `x` in training mode changes; they are as before afterwards."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    module.train()
    with torch.no_grad():
        applied(module, x)
    found = []
    for name, buffer in module.named_buffers():
        if not torch.equal(buffer, before[name]):
            found.append(name)
            buffer.copy_(before[name])
    return found


class Buffers:
    """Some buffers of a module, read into one vector and written from one."""

    def __init__(self, module: nn.Module, names: Iterable[str]) -> None:
        """The buffers `names`, in this order."""
        self.names = tuple(names)
        known = dict(module.named_buffers())
        self.size = sum(known[name].numel() for name in self.names)
        self.start = self.read(module)

    def read(self, module: nn.Module) -> Tensor:
        """A fresh vector of shape (b,)."""
        known = dict(module.named_buffers())
        pieces = [known[name].detach().reshape(-1).float() for name in self.names]
        return torch.cat(pieces) if pieces else torch.empty(0)

    @torch.no_grad()
    def write(self, module: nn.Module, vector: Tensor) -> None:
        """Set the buffers. A variance that a method brought below 0 is 0; counts are rounded."""
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
    """Set the statistics of normalizing layers to those of `batches`, each of which counts the same."""
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
