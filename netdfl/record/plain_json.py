"""Strict JSON that every program can read: numbers that are not finite become null.

Relies on: the library's own encoder, which is fast; values are copied only where a number is not finite.

Why: Python writes NaN and Infinity, which JSON does not have, so browsers, polars and jq would refuse the whole file
for one diverged loss.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from typing import Any

_PLAIN = frozenset((str, int, bool, type(None)))


def plain(value: object) -> object:
    """Copy `value` into dicts, lists and scalars; dataclasses become dicts, and non-finite floats become None."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return str(value)
    parts = _parts(value)
    if isinstance(parts, dict):
        return {str(key): plain(item) for key, item in parts.items()}
    return value if parts is None else [plain(item) for item in parts]


def _parts(value: object) -> dict[Any, object] | list[object] | None:
    """Return a composite value as a dict or list of its parts; None for any other value."""
    if _fields(type(value)):
        return shallow(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return list(value)
    return None


def shallow(value: object) -> dict[str, object]:
    """Return the fields of a dataclass object as a dict, without converting their values."""
    return {name: getattr(value, name) for name in _fields(type(value))}


def _names(kind: type) -> tuple[str, ...]:
    """Return the names of a dataclass's fields; none for any other type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


_fields: Callable[[type], tuple[str, ...]] = cache(_names)


def dump_json(value: object, *, indent: int | None = None) -> str:
    """Return `value` as strict JSON text; compact unless `indent` is given."""
    separators = (",", ": ") if indent else (",", ":")
    dumps = partial(json.dumps, indent=indent, separators=separators, ensure_ascii=False, allow_nan=False)
    try:
        return dumps(value, default=_simpler)
    except (TypeError, ValueError):  # a number that is not finite, a key that is no text: copying costs more
        return dumps(plain(value))


def _simpler(value: object) -> object:
    """Convert a value of a type that JSON lacks into one of a type that JSON has."""
    parts = _parts(value)
    if parts is None:
        raise TypeError(f"{type(value).__name__} is nothing that JSON has")
    return parts


def dump_by_line(value: Mapping[str, object]) -> str:
    """Return `value` as strict JSON text, with one line for each entry and each list item."""
    return "{" + ",\n".join(f"{dump_json(key)}:{_in_lines(entry)}" for key, entry in value.items()) + "}\n"


def _in_lines(entry: object) -> str:
    if isinstance(entry, list):
        return "[\n" + ",\n".join(map(dump_json, entry)) + "]"
    return dump_json(entry)
