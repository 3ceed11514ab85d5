"""Copies of modules that do all that the modules do, and what a module shares that no copy could."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

_EMPTY = CellType()


def copied(module: nn.Module) -> nn.Module:
    """A deep copy that does what `module` does, on its own parameters.

    `deepcopy` leaves out the hooks of gradients that `torch.Tensor.register_hook` gave to parameters, and copies no
    function: a `forward` that was put onto a part, and reaches the module by its closure, would reach the original.
    """
    known: dict[int, Any] = {}
    found = deepcopy(module, known)
    for ours, copy in zip(module.parameters(), found.parameters(), strict=True):
        for hook in (ours._backward_hooks or {}).values():
            copy.register_hook(_moved(hook, known))
    for part in found.modules():
        hooks = (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks, part._backward_pre_hooks)
        for place in (vars(part), *hooks):
            _move_values(place, known)
    return found


def uncompiled(module: nn.Module) -> nn.Module:
    """`module` with its parts in place of what `torch.compile` made around them, and so with its author's names."""
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if (inner := getattr(child, "_orig_mod", None)) is not None and name != "_orig_mod":
                setattr(part, name, inner)
    inner = getattr(module, "_orig_mod", module)
    assert isinstance(inner, nn.Module)
    return inner


def plain_name(name: str) -> str:
    """The name that a parameter has where nothing is compiled."""
    return name.replace("_orig_mod.", "")


def _move_values(place: dict[Any, Any], known: dict[int, Any]) -> None:
    for name, value in list(place.items()):
        if (moved := _moved(value, known)) is not value:
            place[name] = moved


def _moved(value: Any, known: dict[int, Any]) -> Any:
    """`value` itself; but where it reaches what was copied, as `known` says, one that reaches the copies."""
    if isinstance(value, FunctionType):
        return _moved_function(value, known)
    if isinstance(value, MethodType):
        owner = known.get(id(value.__self__), value.__self__)
        return value if owner is value.__self__ else MethodType(value.__func__, owner)
    if type(value) in (list, tuple):
        moved = [_moved(each, known) for each in value]
        return value if all(map(operator.is_, moved, value)) else type(value)(moved)
    return known.get(id(value), value) if isinstance(value, nn.Module | Tensor) else value


def _moved_function(value: FunctionType, known: dict[int, Any]) -> Any:
    if id(value) in known or not value.__closure__:
        return known.get(id(value), value)
    cells = tuple(CellType() for _ in value.__closure__)
    copy = FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
    copy.__kwdefaults__ = value.__kwdefaults__
    copy.__dict__.update(value.__dict__)
    known[id(value)] = copy  # before what it holds: it may hold itself
    changed = False
    for cell, old in zip(cells, value.__closure__, strict=True):
        if old != _EMPTY:
            cell.cell_contents = _moved(old.cell_contents, known)
            changed |= cell.cell_contents is not old.cell_contents
    if not changed:
        known[id(value)] = value
    return copy if changed else value


def check_memory(module: nn.Module) -> None:
    """Refuse parameters that only an optimizer in place, or only `backward`, would treat as their author means.

    A parameter is a view of the node's vector: memory that it shares with another tensor is no longer shared.

    Raises:
        ValueError: a parameter shares memory with something else, or has a hook for accumulated gradients.
    """
    for name, parameter in module.named_parameters():
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            remedy = "let Tensor.register_hook change its gradient"
            raise ValueError(f"parameter {name!r} has a hook that runs when gradients are accumulated: {remedy}")
    spans = sorted(_spans(module))
    for (_, end, first), (start, _, second) in pairwise(spans):
        if start < end:
            remedy = "make them one parameter (b.weight = a.weight), or compute one from the other in forward"
            raise ValueError(f"{first!r} and {second!r} of the model share memory and are two tensors: {remedy}")


def _spans(module: nn.Module) -> Iterator[tuple[int, int, str]]:
    """The bytes that every trained parameter takes, and each tensor that lies among those: first, past the last, name.

    Tensors are other parameters, buffers and plain attributes of the module's parts.
    """
    tensors = dict[str, Tensor](module.named_parameters()) | dict(module.named_buffers())
    for place, part in module.named_modules():
        tensors |= {
            f"{place}.{key}".lstrip("."): value for key, value in vars(part).items() if isinstance(value, Tensor)
        }
    plain = {id(each): (name, each) for name, each in tensors.items() if each.layout == torch.strided and each.numel()}
    trained = {p.untyped_storage().data_ptr() for p in module.parameters() if p.requires_grad and id(p) in plain}
    for name, tensor in plain.values():
        if tensor.untyped_storage().data_ptr() in trained:
            first = tensor.data_ptr()
            extent = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            yield first, first + extent * tensor.element_size(), name
