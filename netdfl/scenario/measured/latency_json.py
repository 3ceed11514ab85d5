"""Matrices of round-trip times in JSON, which services that measure them between cloud regions publish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

from netdfl.core.given_files import given_text
from netdfl.topology.files import is_node_link

Pair: TypeAlias = tuple[str, str, object]
"""Source name, target name, and the measured value of one pair in a file."""
_REGIONS, _TARGETS, _VALUES = ("region", "from", "source"), ("regionTo", "to", "target"), ("average", "latency", "rtt")


def matrix_rows(file: str) -> list[list[str]] | None:
    """Return a matrix in JSON as the rows of a table, its first row and column the names; None for another JSON file.

    Known forms are `{source: {target: value}}`, also below a key `data`, and CloudPing's list of regions with
    `averages`.
    Raises ValueError for a file that can't be read.
    """
    try:
        data = json.loads(given_text(file))
    except OSError as exc:
        raise ValueError(f"can't read {file}: {exc.strerror}; give the path of a JSON file") from exc
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"{file} is not JSON: {exc}") from exc
    if is_node_link(data):
        return None
    found = list(_pairs(data))
    if not found:
        return None
    cells = {(src, dst): value for src, dst, value in found}
    names = list(dict.fromkeys([*(src for src, _, _ in found), *(dst for _, dst, _ in found)]))
    return [["", *names], *([src, *(_cell(cells.get((src, dst))) for dst in names)] for src in names)]


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _pairs(data: Any) -> Iterator[Pair]:
    if isinstance(data, dict) and isinstance(data.get("data"), dict | list):
        data = data["data"]
    if isinstance(data, dict) and all(isinstance(each, dict) for each in data.values()):
        for src, row in data.items():
            yield from ((str(src), str(dst), value) for dst, value in row.items() if _is_value(value))
    for entry in data if isinstance(data, list) else ():
        source = _first(entry, _REGIONS)
        for each in _first(entry, ("averages", "latencies")) or ():
            target, value = _first(each, _TARGETS), _first(each, _VALUES)
            if source is not None and target is not None and _is_value(value):
                yield str(source), str(target), value


def _is_value(value: object) -> bool:
    return value is None or (isinstance(value, int | float | str) and not isinstance(value, bool))


def _first(entry: Any, names: tuple[str, ...]) -> Any:
    return next((entry[name] for name in names if name in entry), None) if isinstance(entry, dict) else None
