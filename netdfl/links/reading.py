"""Reads a part's parameters by its signature: from a scenario's strings, or from base units."""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from netdfl.core.units import Bound, Quantity


def nearest(name: str, names: Sequence[str]) -> str:
    """`; did you mean X?` where some of `names` is like `name`, else the list of them."""
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"choose one of {', '.join(sorted(names)) or '(none is defined)'}"


def read_parameters(function: Callable[..., object], written: Mapping[str, object], what: str) -> dict[str, Any]:
    """The keyword arguments for `function`, in base units.

    A quantity is read from its string; a bare number is taken to be in base units already. Raises
    ValueError for a key that is unknown or missing, and for a value of the wrong type or range.
    """
    hints, parameters = _signature(function)
    for name in written:
        if name not in parameters:
            raise ValueError(f"{what} has no key {name!r}; {nearest(name, list(parameters))}")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in written:
            raise ValueError(f"{what} lacks {name!r}; add it")
    return {name: read_value(hints[name], value, f"{what} {name.rstrip('_')}") for name, value in written.items()}


@cache
def _signature(function: Callable[..., object]) -> tuple[Mapping[str, Any], Mapping[str, inspect.Parameter]]:
    """The types of its parameters, and those that a scenario can write."""
    owner = function.__init__ if inspect.isclass(function) and not dataclasses.is_dataclass(function) else function
    hidden = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_KEYWORD)
    written = {n: p for n, p in inspect.signature(function).parameters.items() if p.kind not in hidden}
    return get_type_hints(owner, include_extras=True), written


def read_value(annotation: object, value: object, what: str) -> object:
    """`value` as `annotation` says. Raises ValueError that begins with `what`."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _read_marked(args[0], args[1:], value, what)
    if origin in (Union, UnionType):
        return _read_union(args, value, what)
    if origin is Literal:
        if value not in args:
            raise ValueError(f"{what} = {value!r} is unknown; {nearest(str(value), [str(a) for a in args])}")
        return value
    if origin is list:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{what} = {value!r} is not a list; write [...]")
        return [read_value(args[0], item, f"{what}[{place}]") for place, item in enumerate(value)]
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation) and isinstance(value, Mapping):
        return annotation(**read_parameters(annotation, value, what))
    return _read_plain(annotation, value, what)


def _read_plain(kind: Any, value: Any, what: str) -> object:
    if isinstance(kind, type) and issubclass(kind, StrEnum) and value in list(kind):
        return kind(value)
    accepted = (int, float) if kind is float else kind
    if accepted is type(None) and value is None:
        return None
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{what} = {value!r} is not {getattr(kind, '__name__', kind)}; correct it")
    return value


def _read_marked(kind: object, marks: Sequence[object], value: Any, what: str) -> object:
    quantity = next((mark for mark in marks if isinstance(mark, Quantity)), None)
    if quantity is not None and (isinstance(value, str) or quantity.name == "probability"):
        try:
            value = quantity.parse(value)
        except ValueError as exc:
            raise ValueError(f"{what}: {exc}") from exc
    value = read_value(kind, value, what)
    for mark in marks:
        if isinstance(mark, Bound):
            _check_bound(mark, value, what)
    return value


def _check_bound(bound: Bound, value: float, what: str) -> None:
    tests = (
        (bound.gt, "above", operator.gt),
        (bound.ge, "at least", operator.ge),
        (bound.lt, "below", operator.lt),
        (bound.le, "at most", operator.le),
    )
    for limit, words, holds in tests:
        if limit is not None and not holds(value, limit):
            raise ValueError(f"{what} = {value} must be {words} {limit:g}")


def _read_union(kinds: Sequence[object], value: object, what: str) -> object:
    mistakes = []
    for kind in kinds:
        try:
            return read_value(kind, value, what)
        except ValueError as exc:
            mistakes.append(str(exc))
    raise ValueError(mistakes[0])
