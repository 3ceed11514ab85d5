"""Compute times of nodes from a table: a CSV file with a row for each node, or for each of a node's rounds."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

from netdfl.core.given_files import given_text
from netdfl.core.units import parse_time_ns

_UNITS = ("ns", "us", "ms", "s")
_TIMES = ("compute", "time", "duration", "seconds")
"""Headings of the column of times, without a unit at their end."""
_FORM = "expected a header with a column like compute_ms, and node where rows are not in the order of nodes"


def read_compute_table(file: str, column: str = "") -> list[list[int]]:
    """Read the times of each node in nanoseconds, in the order of the file.

    `column` names the column of times; by default it is the first one called compute, time, duration or seconds. A
    bare number has the unit that ends the column's name (`compute_ms`). Raises ValueError with file and line.
    """
    try:
        text = given_text(file)
    except OSError as exc:
        raise ValueError(f"can't read {file} as a CSV file: {exc}; name a table of compute times") from exc
    numbered = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if len(numbered) < 2:
        raise ValueError(f"{file} has no row below its header; {_FORM}")
    mark = max(",;\t", key=numbered[0][1].count)
    rows = list(csv.reader((line for _, line in numbered), delimiter=mark, skipinitialspace=True))
    heads = [head.strip() for head in rows[0]]
    place = _column(file, heads, column)
    unit = _unit_of(heads[place])
    node_at = next((at for at, head in enumerate(heads) if head.lower() == "node"), None)
    found: dict[int, list[int]] = {}
    for index, ((line, _), row) in enumerate(zip(numbered[1:], rows[1:], strict=True)):
        where = f"{file}:{line}"
        node = index if node_at is None else _node(where, row, node_at)
        found.setdefault(node, []).append(_time(where, row, place, unit, heads[place]))
    missing = next((node for node in range(max(found) + 1) if node not in found), None)
    if missing is not None:
        raise ValueError(f"{file} has no time of node {missing}; give each node from 0 to {max(found)} a row")
    return [found[node] for node in sorted(found)]


def _column(file: str, heads: Sequence[str], column: str) -> int:
    if column:
        if column not in heads:
            raise ValueError(f"{file} has no column {column}; it has {', '.join(heads)}")
        return heads.index(column)
    for place, head in enumerate(heads):
        if re.sub(r"[\W_]*(ns|us|ms|s)?[\W_]*$", "", head.lower()) in _TIMES or head.lower() in _TIMES:
            return place
    raise ValueError(f"{file}: none of {', '.join(heads)} is a compute time; {_FORM}")


def _unit_of(head: str) -> str:
    """Return the unit that ends a column's name; empty without one."""
    last = re.split(r"[^a-z]+", head.lower().rstrip(" )]"))[-1]
    return "s" if last == "seconds" else last if last in _UNITS else ""


def _node(where: str, row: Sequence[str], place: int) -> int:
    text = row[place].strip() if place < len(row) else ""
    if not text.isdigit():
        raise ValueError(f"{where}: {text!r} is no node; write its number, from 0 on")
    return int(text)


def _time(where: str, row: Sequence[str], place: int, unit: str, head: str) -> int:
    text = row[place].strip() if place < len(row) else ""
    bare = re.fullmatch(r"-?[0-9.]+(?:[eE][+-]?[0-9]+)?", text) is not None
    if bare and not unit:
        raise ValueError(f"{where}: {text} has no unit; write it as {text}ms, or call the column {head}_ms")
    try:
        return parse_time_ns(f"{text}{unit}" if bare else text)
    except ValueError as exc:
        raise ValueError(f"{where}: {head}: {exc}") from exc
