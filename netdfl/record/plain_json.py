"""JSON that every reader takes: numbers that are not finite become null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

_PLAIN = frozenset((str, int, bool, type(None)))


def plain(value: object) -> object:
    """Copy `value` as dicts, lists and scalars, with None for a float that is not finite."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [plain(item) for item in value]
    return value


def dump_json(value: object, *, indent: int | None = None) -> str:
    """Return `value` as strict JSON text; compact unless `indent` is given."""
    separators = (",", ": ") if indent else (",", ":")
    return json.dumps(plain(value), indent=indent, separators=separators, ensure_ascii=False, allow_nan=False)
