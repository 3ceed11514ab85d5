"""The detection of places where a user's code draws random numbers without a seed.

An unseeded generator of numpy, Python or torch gets its seed from one of a few functions. While a user's code runs,
functions that record their callers replace these.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from netdfl.core.whose import own_place_here


@contextmanager
def watched() -> Iterator[list[str]]:
    """Yield a list that collects the places (`file:line`) where a user's code draws unseeded numbers."""
    found: list[str] = []
    with ExitStack() as stack:
        for owner, name, is_chance in _asked_for():
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, _telling(getattr(owner, name), is_chance, found))
        stack.callback(setattr, np.random, "RandomState", np.random.RandomState)
        np.random.RandomState = _RandomState  # type: ignore[misc]
        yield found


_SEEDED: list[bool] = []
"""Not empty while numpy makes a seeded generator: it first makes an unseeded one, which does not count."""


class _RandomStateMeta(type(np.random.RandomState)):  # type: ignore[misc]
    """A metaclass for `_RandomState`, by which `isinstance` is true for instances of numpy's own class, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])


class _RandomState(np.random.RandomState, metaclass=_RandomStateMeta):
    """A replacement of numpy's `RandomState` that marks in `_SEEDED` that a seed was given."""

    def __init__(self, seed: Any = None) -> None:
        if seed is None:
            super().__init__()
            return
        _SEEDED.append(True)
        try:
            super().__init__(seed)
        finally:
            _SEEDED.pop()


def _asked_for() -> Iterator[tuple[Any, str, Callable[..., bool]]]:
    """Yield functions that draw unseeded numbers: (owner, name, test whether a call's arguments have no seed)."""
    yield importlib.import_module("numpy.random.bit_generator"), "randbits", lambda *args: True
    yield random, "_urandom", lambda *args: True  # of SystemRandom, and so of `secrets`
    yield importlib.import_module("os"), "urandom", lambda *args: True
    yield random.Random, "seed", lambda generator, seed=None, *more: seed is None
    yield random, "seed", lambda seed=None, *more: seed is None
    for module in (torch, torch.random):
        yield module, "seed", lambda: True


def _telling(function: Callable[..., Any], is_chance: Callable[..., bool], found: list[str]) -> Callable[..., Any]:
    def telling(*args: Any, **kwargs: Any) -> Any:
        if not _SEEDED and is_chance(*args, *kwargs.values()) and (place := own_place_here()) and place not in found:
            found.append(place)
        return function(*args, **kwargs)

    return telling
