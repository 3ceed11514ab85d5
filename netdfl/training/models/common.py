"""State that all modules of a user's class share: attributes of classes, and globals; and the state of a loss.

Copies of a module do not have this state of their own, so nodes of one process would train each other: changes to it
are refused. All nodes of a process share one loss, so its own attributes are such state, too.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from netdfl.core.whose import is_users, without_home
from netdfl.training.models.reach import ATOMS, MOST_PLACES, NOTHING_THERE, places, same, told

_Named = tuple[str, Any]
_METHODS = (types.FunctionType, classmethod, staticmethod, property, type, types.ModuleType)
_CONTAINERS = (list, tuple, deque)
_NOWHERE = "<nowhere>"
LARGE = 1 << 20
"""Bytes of an array above which it counts as data, and is not looked at: it would be copied."""
_Home = tuple[str, Mapping[str, Any], frozenset[str] | None]
"""A namespace: its label, its contents, and the names in it; None stands for all attributes of a class."""


class SharedStateWatch:
    """A detector of changes to state that all modules of a class share: class attributes and globals."""

    def __init__(self, module: nn.Module | None, loss: Callable[..., Any] | None = None) -> None:
        """Record the current shared state of the module's classes and globals, or the state of a user's loss."""
        parts = [value for _, value in places(module)] if module is not None else list(_parts_of_loss(loss))
        self._homes = [*_homes(parts), *(_own_home(part) for part in parts if loss is not None)]
        self.settle()

    def settle(self) -> None:
        """Record the current state anew, so that later changes are compared with it."""
        self._before = {place: _kept(value) for place, value in self._found()}

    def changed(self) -> str | None:
        """Return the path of names to a changed class attribute or global; None if nothing has changed."""
        gone = set(self._before)
        for place, value in self._found():
            if not _as_it_was(value, self._before.get(place, NOTHING_THERE)):
                return place
            gone.discard(place)
        return min(gone, default=None)

    def _found(self) -> Iterator[_Named]:
        seen: set[int] = set()
        left = [(f"{place}.{name}", value) for place, home, names in self._homes for name, value in _in(home, names)]
        for _ in range(MOST_PLACES):
            if not left:
                return
            place, value = left.pop()
            if type(value) in ATOMS:
                yield place, value
            elif id(value) not in seen and not isinstance(value, _METHODS):
                seen.add(id(value))
                yield place, value
                left.extend(_parts(place, value))


def _in(home: Mapping[str, Any], names: frozenset[str] | None) -> Iterator[_Named]:
    """Yield (name, value) of `names` in the namespace `home`; without names, of all in a class except methods."""
    if names is not None:
        yield from ((name, home[name]) for name in names if name in home)
        return
    for name, value in home.items():
        if not (name.startswith("__") or isinstance(value, _METHODS)):
            yield name, value


def _parts(place: str, value: Any) -> Iterator[_Named]:
    """Yield (path of names, object) for each part of a container, a module, or an object of a user's class.

    `place` is the path of the object `value` itself.
    """
    if isinstance(value, nn.Module):
        yield from ((f"{place}.{name}", each) for name, each in (*value.named_parameters(), *value.named_buffers()))
    elif isinstance(value, dict):
        yield from ((f"{place}[{key!r:.40}]", part) for key, part in value.items())
    elif isinstance(value, _CONTAINERS):
        yield from ((f"{place}[{number}]", part) for number, part in enumerate(value))
    elif _is_users_class(type(value)):
        yield from ((f"{place}.{name}", part) for name, part in getattr(value, "__dict__", {}).items())


def _kept(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value, value._version, _address(value)
    then = told(value)
    return then.copy() if isinstance(then, set | np.ndarray) else then


def _as_it_was(value: Any, then: Any) -> bool:
    if isinstance(value, Tensor):
        if not isinstance(then, tuple):
            return False
        tensor, version, address = then
        return (tensor._version, _address(tensor)) == (version, address) and same(value, tensor)
    return same(told(value), then)


def _address(tensor: Tensor) -> int:
    """Return the address of a tensor's memory, which changes when `.data` is set; 0 for layouts without one."""
    return tensor.data_ptr() if tensor.layout == torch.strided else 0


def _parts_of_loss(loss: Callable[..., Any] | None) -> Iterator[Any]:
    """Yield the functions and the object that a loss consists of."""
    if isinstance(loss, partial):
        yield from _parts_of_loss(loss.func)
    elif isinstance(loss, types.MethodType):
        yield from (loss.__func__, loss.__self__)
    else:
        yield loss


def _own_home(part: Any) -> _Home:
    """Return the namespace of an object's own attributes, without modules and large arrays in it."""
    own = getattr(part, "__dict__", {}) if _is_users_class(type(part)) else {}
    large = {name for name, value in own.items() if isinstance(value, np.ndarray) and value.nbytes > LARGE}
    apart = {name for name, value in own.items() if isinstance(value, nn.Module)} | {"training", "_modules"}
    return type(part).__qualname__, own, frozenset(own) - large - apart


def _homes(parts: Iterable[Any]) -> Iterator[_Home]:
    """Yield the namespaces that may hold state that is shared by objects that consist of `parts`."""
    left: list[Any] = []
    for value in parts:
        left += [value] if isinstance(value, types.FunctionType) else type(value).__mro__
    seen: set[int] = set()
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, type) and _is_users_class(each):
            yield each.__qualname__, vars(each), None
            left += [getattr(part, "__func__", getattr(part, "fget", part)) for part in vars(each).values()]
        elif isinstance(each, types.FunctionType) and is_users(each.__code__.co_filename):
            names = frozenset(_names(each.__code__)) - vars(builtins).keys()
            for place, home in _namespaces(each, names):
                yield place, home, names
                left += [home[name] for name in names if isinstance(home.get(name), types.FunctionType | type)]


def _namespaces(function: types.FunctionType, names: frozenset[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the globals that a function can read, and contents of a user's modules that its code names."""
    home = function.__globals__
    yield without_home(str(home.get("__name__", ""))), home
    for name in names:
        found = home.get(name)
        if isinstance(found, types.ModuleType) and is_users(getattr(found, "__file__", None) or _NOWHERE):
            yield without_home(found.__name__), vars(found)


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield all names of globals and attributes that a function and its inner functions look up."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _names(part)


def _is_users_class(kind: type) -> bool:
    """Return whether a class, or one of its methods, is a user's code."""
    if is_users(getattr(sys.modules.get(kind.__module__), "__file__", None) or _NOWHERE):
        return True
    methods = (getattr(part, "__func__", part) for part in vars(kind).values())
    return any(isinstance(each, types.FunctionType) and is_users(each.__code__.co_filename) for each in methods)
