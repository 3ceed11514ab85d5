"""Models and data that a Python program passes as objects, under names that a scenario can use.

    given = handed_in(model=net, data=(train, test))
    netdfl.load({..., "task": {"model": {"name": given.model}, "dataset": {"name": given.dataset}}})

has the same effect as `netdfl.run(..., model=net, data=(train, test))`. An object lives in its process, as fleets of
the simulated world do. Fleets of other worlds live in processes that only have files, and report the missing object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from torch import nn

from netdfl.core.errors import InputError
from netdfl.training.data.own import Datasets, adapted
from netdfl.training.data.reading import is_column
from netdfl.training.models.copying import copied

Factory: TypeAlias = Callable[..., nn.Module]
_GIVEN: dict[str, Callable[[], Any]] = {}
_MODELS = "a torch.nn.Module, a class of one, or a function that returns one"


class ObjectNames(NamedTuple):
    """The names in a scenario for objects that a program passed; None for missing ones."""

    model: str | None
    dataset: str | None


def handed_in(*, model: nn.Module | type[nn.Module] | Factory | None = None, data: object = None) -> ObjectNames:
    """Register a model and data under new names, and return the names.

    All nodes start from a module's weights; a class or a function makes its own initial ones. `data` is
    `netdfl.Datasets`, any form that it can be made of, or a list with one of these for each client.

    Raises:
        InputError: `model` or `data` has another type.
    """
    make, take = (None if model is None else _maker(model)), (None if data is None else _by_client(data))
    return ObjectNames(
        None if make is None else _named("model", make), None if take is None else _named("data", lambda: take)
    )


def _maker(model: object) -> Callable[[], Any]:
    if isinstance(model, nn.Module):
        return _copies(model)
    if isinstance(model, type) and not issubclass(model, nn.Module):
        raise InputError(f"model is the class {model.__name__}: expected {_MODELS}")
    if not callable(model):
        raise InputError(f"model is {type(model).__name__}: expected {_MODELS}")
    return model if hasattr(model, "__qualname__") else lambda: model()  # functools.partial has no name


def _by_client(data: object) -> object:
    """Return `Datasets` with each client's data if `data` is a list with one dataset per client; else `data` itself."""
    if isinstance(data, type):
        raise InputError(f"data is the class {data.__name__}: expected data, such as {data.__name__}(...)")
    if not isinstance(data, list) or not data or is_column(data[0]):
        return _adaptable(data)
    if len(data) == 2:
        what = "data is a list of two, which may be (train, test) or two clients"
        raise InputError(f"{what}: write a tuple (train, test), or netdfl.Datasets(clients=[...])")
    return Datasets(clients=data)


def _adaptable(data: object) -> object:
    try:
        adapted(data)
    except TypeError as exc:
        what = f"{type(data).__name__} of {len(data)}" if isinstance(data, tuple | list) else type(data).__name__
        raise InputError(f"data is {what}: expected {exc}") from exc
    return data


def _copies(model: nn.Module) -> Callable[[], nn.Module]:
    try:
        kept = copied(model)
    except Exception as exc:
        what = f"model can't be copied for each node ({type(exc).__name__}: {exc})"
        raise InputError(f"{what}: give a function that makes it") from exc
    return lambda: copied(kept)


def _named(what: str, make: Callable[[], Any]) -> str:
    name = f"{what}_{len(_GIVEN)}"
    _GIVEN[name] = make
    return f"{__name__}:{name}"


def __getattr__(name: str) -> Callable[[], Any]:
    """Return the object that was registered under `name`."""
    if name in _GIVEN:
        return _GIVEN[name]
    if name.rpartition("_")[2].isdigit():
        raise AttributeError(
            f"{name} was handed in as an object, which this process does not have: run in the simulated world, or "
            "name a class or function of a file, as module:name"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
