"""Models and data that a Python program hands in as objects, under names that a scenario can write.

    given = handed_in(model=net, data=(train, test))
    netdfl.run({..., "task": {"model": {"name": given.model}, "dataset": {"name": given.dataset}}})

An object lives in its process: so do fleets of the simulated world. Fleets of other worlds live in processes that know
only what lies in files, and are told so.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

from torch import nn

_GIVEN: dict[str, Callable[[], Any]] = {}


class HandedIn(NamedTuple):
    """What a scenario writes for what was handed in; None where nothing was."""

    model: str | None
    dataset: str | None


def handed_in(*, model: nn.Module | type[nn.Module] | None = None, data: object = None) -> HandedIn:
    """Names for a model, whose weights all nodes start from (a class: its own initial ones), and for data.

    `data` is `netdfl.Datasets`, or what it may be made of. Raises TypeError where `model` is no module.
    """
    is_class = isinstance(model, type) and issubclass(model, nn.Module)
    if model is not None and not is_class and not isinstance(model, nn.Module):
        raise TypeError(f"model is {type(model).__name__}, expected a torch.nn.Module, or a class of one")
    make = None if model is None else model if isinstance(model, type) else _copies(model)
    return HandedIn(
        None if make is None else _named("model", make), None if data is None else _named("data", lambda: data)
    )


def _copies(model: nn.Module) -> Callable[[], nn.Module]:
    kept = deepcopy(model)
    return lambda: deepcopy(kept)


def _named(what: str, make: Callable[[], Any]) -> str:
    name = f"{what}_{len(_GIVEN)}"
    _GIVEN[name] = make
    return f"{__name__}:{name}"


def __getattr__(name: str) -> Callable[[], Any]:
    """What was handed in under `name`."""
    if name in _GIVEN:
        return _GIVEN[name]
    if name.rpartition("_")[2].isdigit():
        raise AttributeError(
            f"{name} was handed in as an object, which this process does not have: run in the simulated world, or "
            "name a class or function of a file, as module:name"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
