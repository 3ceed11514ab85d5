"""The conversion of inputs to the number type of a module."""

from __future__ import annotations

from torch import Tensor, nn

from netdfl.training.data.examples import Tree, mapped


def as_taken(module: nn.Module, x: Tree) -> Tree:
    """Return inputs whose floating-point tensors have the type of the module's first floating-point parameter."""
    dtype = next((p.dtype for p in module.parameters() if p.dtype.is_floating_point), None)
    if dtype is None or (isinstance(x, Tensor) and x.dtype == dtype):
        return x
    return mapped(x, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)
