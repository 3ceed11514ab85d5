"""Exact copies of modules, and the detection of state that can't be copied."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from copy import deepcopy
from itertools import pairwise
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netdfl.core.whose import named_error, own_place
from netdfl.training.models.reach import ATOMS, is_filled, places

_COPIED_WITH_THE_REST = (nn.Module, dict, list, tuple, set, frozenset, deque, MethodType, np.ndarray)


def copied(module: nn.Module, *, light: bool = False, shared: set[str] | None = None) -> nn.Module:
    """Return a deep copy that behaves like `module`, with separate parameters and state.

    It copies more than `deepcopy`, which omits the gradient hooks of `torch.Tensor.register_hook` on parameters, and
    copies no functions: a replaced `forward` whose closure refers to the module would still refer to the original.
    Objects that can't be copied, such as locks, are shared: their places are added to `shared`. In a `light` copy
    trained parameters are new objects that share the memory of the module's.
    """
    known: dict[int, Any] = {}
    functions: list[FunctionType] = []
    if light:
        for parameter in module.parameters():
            if parameter.requires_grad and type(parameter) is nn.Parameter:
                known[id(parameter)] = nn.Parameter(parameter.detach())
    for place, value in places(module):
        if isinstance(value, FunctionType):
            if value.__closure__:
                functions.append(value)
                known[id(value)] = _with_cells_of_its_own(value)
        elif isinstance(value, torch.Generator):
            known[id(value)] = _at_the_same(value)
        elif isinstance(value, Tensor):
            if not value.is_leaf:
                known[id(value)] = value.detach().clone()
        elif not (type(value) in ATOMS or isinstance(value, _COPIED_WITH_THE_REST) or _can_be_copied(value, known)):
            known[id(value)] = value
            if shared is not None:
                shared.add(place)
    found = deepcopy(module, known)
    for function in functions:
        for cell, old in zip(known[id(function)].__closure__, function.__closure__ or (), strict=True):
            if is_filled(old):
                cell.cell_contents = deepcopy(old.cell_contents, known)
    for ours, copy in zip(module.parameters(), found.parameters(), strict=True):
        for hook in (ours._backward_hooks or {}).values():
            copy.register_hook(deepcopy(hook, known))
    return found


def copied_for_each(module: nn.Module, *, light: bool = False, shared: set[str] | None = None) -> nn.Module:
    """Return `copied(module)` for a user's module. Raises ValueError with the text of the error if copying fails."""
    try:
        return copied(module, light=light, shared=shared)
    except Exception as error:  # whatever a user's own __deepcopy__ raises
        place = f" ({own})" if (own := own_place(error)) else ""
        what = f"the model can't be copied for each node ({named_error(error)}){place}"
        raise ValueError(f"{what}: let copy.deepcopy copy it") from error


def uncompiled(module: nn.Module) -> nn.Module:
    """Replace the wrappers of `torch.compile` in a module by the original parts."""
    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if (inner := getattr(child, "_orig_mod", None)) is not None and name != "_orig_mod":
                setattr(part, name, inner)
    inner = getattr(module, "_orig_mod", module)
    assert isinstance(inner, nn.Module)
    return inner


def plain_name(name: str) -> str:
    """Return a parameter's name without the prefixes of `torch.compile`."""
    return name.replace("_orig_mod.", "")


def _with_cells_of_its_own(value: FunctionType) -> FunctionType:
    """Return a copy of a function with new, empty closure cells, which the caller fills."""
    cells = tuple(CellType() for _ in value.__closure__ or ())
    copy = FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
    copy.__kwdefaults__ = value.__kwdefaults__
    copy.__dict__.update(value.__dict__)
    return copy


def _at_the_same(generator: torch.Generator) -> torch.Generator:
    """Return a copy of a random generator, at the same point of its sequence."""
    copy = torch.Generator(generator.device)
    copy.set_state(generator.get_state())
    return copy


def _can_be_copied(value: Any, known: dict[int, Any]) -> bool:
    try:
        deepcopy(value, dict(known))
    except Exception:  # whatever a user's own __deepcopy__ raises
        return False
    return True


def attributes(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors that are plain attributes of the module or its parts."""
    return {
        f"{place}.{key}".lstrip("."): value
        for place, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, Tensor)
    }


def check_memory(module: nn.Module, but: Collection[str] = ()) -> None:
    """Check that parameters share no memory and have no hooks that would fail with a flat vector.

    A parameter becomes a view of the node's vector, so it no longer shares memory with another tensor, as its module
    expects. The attributes `but` are exempt, because they are computed anew whenever the module runs.

    Raises:
        ValueError: A parameter shares memory with something else, or has a hook for accumulated gradients.
    """
    for name, parameter in module.named_parameters():
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            remedy = "let Tensor.register_hook change its gradient"
            raise ValueError(f"parameter {name!r} has a hook that runs when gradients are accumulated: {remedy}")
    spans = sorted(_spans(module, but))
    for (_, end, first), (start, _, second) in pairwise(spans):
        if start < end:
            remedy = "make them one parameter (b.weight = a.weight), or compute one from the other in forward"
            raise ValueError(f"{first!r} and {second!r} of the model share memory and are two tensors: {remedy}")


def _spans(module: nn.Module, but: Collection[str]) -> Iterator[tuple[int, int, str]]:
    """Yield (first byte, end, name) of each trained parameter and of each tensor in the same storage.

    Tensors are other parameters, buffers, and plain attributes of the module and its submodules, except those named
    `but`.
    """
    tensors = dict[str, Tensor](module.named_parameters()) | dict(module.named_buffers())
    tensors |= {place: tensor for place, tensor in attributes(module).items() if place not in but}
    plain = {id(each): (name, each) for name, each in tensors.items() if each.layout == torch.strided and each.numel()}
    trained = {p.untyped_storage().data_ptr() for p in module.parameters() if p.requires_grad and id(p) in plain}
    for name, tensor in plain.values():
        if tensor.untyped_storage().data_ptr() in trained:
            first = tensor.data_ptr()
            extent = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
            yield first, first + extent * tensor.element_size(), name
