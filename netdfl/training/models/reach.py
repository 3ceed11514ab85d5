"""All objects that a module can reach, each with its place (a path of names): the state that it may keep between calls.

These are attributes and their contents, hooks, and the closures of functions among these. Excluded are the inner
objects of torch, and state that all modules of a kind share: classes, and globals.
"""

from __future__ import annotations

import operator
import random
import types
import weakref
from collections import deque
from collections.abc import Collection, Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

MOST_PLACES = 20_000
"""The most objects that are visited in a module: larger collections, such as a vocabulary, are no changing state."""
ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size})
"""Types without parts that never change."""
NOTHING_THERE = object()
_NOT_LOOKED_INTO = (types.ModuleType, types.BuiltinFunctionType, type, weakref.ref)
_EMPTY = types.CellType()
_OF_MODULES = frozenset({"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"})
_Parts = list[tuple[str, Any]]


def places(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield (path of names, object) once for each object that `module` can reach; numbers and texts at every path.

    Buffers and parameters come first, by their names. Trained parameters are left out, but not their hooks.
    """
    seen: set[int] = set()
    left: _Parts = [("", module)]
    for name, tensor in chain(module.named_buffers(), module.named_parameters()):
        seen.add(id(tensor))
        left.extend(_parts(name, tensor))
        if not (tensor.requires_grad and isinstance(tensor, nn.Parameter)):
            yield name, tensor
    for _ in range(MOST_PLACES):
        if not left:
            return
        place, value = left.pop()
        if type(value) not in ATOMS:
            if id(value) in seen or isinstance(value, _NOT_LOOKED_INTO):
                continue
            seen.add(id(value))
            left.extend(reversed(_parts(place, value)))
        yield place, value


def _parts(place: str, value: Any) -> _Parts:
    """Return (path of names, object) for each part of the object `value`, whose own path is `place`."""
    if isinstance(value, nn.Module):
        inside = value._modules, value._parameters, value._buffers, vars(value)
        return [
            (f"{place}.{name}" if place else name, part)
            for of in inside
            for name, part in of.items()
            if not (of is inside[-1] and (name in _OF_MODULES or (isinstance(part, dict) and not part)))
        ]
    if isinstance(value, Tensor):
        return [(f"{place} hook", hook) for hook in (value._backward_hooks or {}).values()]
    if isinstance(value, dict):
        return [(f"{place}[{key!r:.40}]", part) for key, part in value.items()]
    if isinstance(value, list | tuple | deque):
        return [(f"{place}[{number}]", part) for number, part in enumerate(value)]
    if isinstance(value, partial):
        return [(f"{place} of", value.func), (f"{place} args", value.args), (f"{place} named", value.keywords)]
    if isinstance(value, types.MethodType):
        return [(f"{place} of", value.__self__), (f"{place} by", value.__func__)]
    if type(value).__module__.partition(".")[0] == "torch" or isinstance(value, random.Random):
        return []
    if isinstance(value, types.FunctionType):
        return [] if (value.__module__ or "").partition(".")[0] == "torch" else _of_function(place, value)
    return [(f"{place}.{name}", part) for name, part in getattr(value, "__dict__", {}).items()]


def _of_function(place: str, function: types.FunctionType) -> _Parts:
    found: _Parts = [(f"{place} defaults", function.__defaults__), (f"{place} named", function.__kwdefaults__)]
    names = function.__code__.co_freevars
    cells = zip(names, function.__closure__ or (), strict=True)
    return found + [(f"{place} {name}", cell.cell_contents) for name, cell in cells if is_filled(cell)]


def is_filled(cell: types.CellType) -> bool:
    """Return whether a function's closure cell has contents."""
    return bool(cell != _EMPTY)


def told(value: Any) -> Any:
    """Return a snapshot of an object, which `same` compares with a later one.

    It differs if the object itself, apart from its parts, has changed.
    """
    if type(value) in ATOMS or isinstance(value, Tensor | np.ndarray):
        return value
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.RandomState):
        _, key, *rest = value.get_state()
        return np.asarray(key).tobytes(), *rest
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        return None if frame is None else (frame.f_lasti, repr(frame.f_locals))
    if isinstance(value, dict | list | tuple | deque):
        return len(value)
    if isinstance(value, types.FunctionType):
        return value.__code__
    return type(value) if hasattr(value, "__dict__") else value


def same(value: Any, before: Any) -> bool:
    """Return whether two snapshots of an object, made by `told`, are exactly equal."""
    if value is before:
        return True
    if isinstance(value, Tensor):
        if not isinstance(before, Tensor) or (value.shape, value.dtype) != (before.shape, before.dtype):
            return False
        try:
            return torch.equal(value, before)
        except (RuntimeError, NotImplementedError):  # of a layout that can't be compared
            return False
    if type(value) is not type(before):
        return False
    if isinstance(value, np.ndarray):
        return bool(value.dtype == before.dtype) and value.tobytes() == before.tobytes()
    try:
        return bool(value == before)
    except Exception:  # whatever a user's own comparison raises
        return False


class ModuleWatch:
    """A fast check whether a module has changed, by identities of objects and version counters of tensors."""

    def __init__(self, module: nn.Module, but: Collection[str]) -> None:
        """Record all objects that `module` can reach, except the buffers `but`."""
        self._held: list[tuple[Collection[Any], tuple[Any, ...]]] = []
        self._tensors: list[tuple[Tensor, int]] = []
        self._others: list[tuple[Any, Any]] = []
        for place, value in places(module):
            if isinstance(value, Tensor):
                if place not in but and not value.is_inference():
                    self._tensors.append((value, value._version))
            elif type(value) not in ATOMS:
                self._add(value)

    def _add(self, value: Any) -> None:
        if isinstance(value, nn.Module):
            inside = value._modules, value._parameters, value._buffers, vars(value)
            self._held += [(of.values(), tuple(of.values())) for of in inside]
        elif isinstance(value, dict):
            self._held.append((value.values(), tuple(value.values())))
        elif isinstance(value, list | deque):
            self._held.append((value, tuple(value)))
        elif isinstance(value, types.FunctionType):
            self._others += [(cell, cell.cell_contents) for cell in value.__closure__ or () if is_filled(cell)]
        elif hasattr(value, "__dict__") and not isinstance(value, random.Random):
            self._held.append((vars(value).values(), tuple(vars(value).values())))
        elif not isinstance(value, tuple):
            then = told(value)
            self._others.append((value, then.copy() if isinstance(then, set | np.ndarray) else then))

    def untouched(self) -> bool:
        """Return whether nothing in the module has changed since it was recorded."""
        return (
            all(len(now) == len(then) and all(map(operator.is_, now, then)) for now, then in self._held)
            and all(tensor._version == version for tensor, version in self._tensors)
            and all(_as_it_was(value, then) for value, then in self._others)
        )


def _as_it_was(value: Any, then: Any) -> bool:
    return bool(value.cell_contents is then) if isinstance(value, types.CellType) else same(told(value), then)
