"""The tables that sweeps and reproductions leave in a folder of runs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from netdfl.core.errors import InputError
from netdfl.core.files import read_plain

MOST_TABLES, MOST_ROWS = 40, 500
CELLS = "cells"
"""The name of the folder of runs beside a table, and of the table that has a row for each of these runs."""


def find_tables(root: Path, name_of: Callable[[Path], str]) -> list[dict[str, Any]]:
    """Return the tables below `root`, each with its head, its rows, and the names of the runs behind each row."""
    found = []
    for path in _files(root):
        try:
            rows = list(csv.reader(io.StringIO(read_plain(path, 1 << 22))))
        except (InputError, OSError, csv.Error):
            continue
        if len(rows) > 1:
            found.append(_table(path, root, rows, name_of))
        if len(found) == MOST_TABLES:
            break
    return found


def _files(root: Path) -> Iterator[Path]:
    for pattern in ("*.csv", "*/*.csv", "*/*/*.csv", "*/*/*/*.csv"):
        for path in sorted(root.glob(pattern)):
            if (path.parent / CELLS).is_dir() and not path.is_symlink():
                yield path


def _table(path: Path, root: Path, rows: list[list[str]], name_of: Callable[[Path], str]) -> dict[str, Any]:
    head, body = rows[0], rows[1 : MOST_ROWS + 1]
    column = head.index("run") if "run" in head else -1
    runs = [_runs(path.parent / CELLS, row, column, name_of) for row in body]
    if column < 0:
        runs = _of_points(path.parent, head, body, name_of)
    return {
        "name": str(path.relative_to(root)),
        "head": head,
        "rows": body,
        "runs": runs,
        "left_out": max(0, len(rows) - 1 - MOST_ROWS),
    }


def _runs(cells: Path, row: list[str], column: int, name_of: Callable[[Path], str]) -> list[str]:
    """Return the names of the runs that a row of a table lists in its cell `column`; `cells` is the runs' folder."""
    if not 0 <= column < len(row):
        return []
    names = [part.strip() for part in row[column].split()]
    return [name_of(cells / name) for name in names if name and "/" not in name and (cells / name).is_dir()]


def _of_points(folder: Path, head: list[str], body: list[list[str]], name_of: Callable[[Path], str]) -> list[list[str]]:
    """Return, for each row of a table of means, the names of the runs behind it.

    They are the runs in the rows of `cells.csv` that agree with the row in every key.
    """
    try:
        cells = list(csv.reader(io.StringIO(read_plain(folder / f"{CELLS}.csv", 1 << 24))))
    except (InputError, OSError, csv.Error):
        return [[] for _ in body]
    if not cells or "run" not in cells[0] or "seed" not in cells[0]:
        return [[] for _ in body]
    keys = [name for name in cells[0][: cells[0].index("seed")] if name in head]
    found: dict[tuple[str, ...], list[str]] = {}
    for row in cells[1:]:
        if len(row) == len(cells[0]):
            key = tuple(row[cells[0].index(name)] for name in keys)
            found.setdefault(key, []).extend(_runs(folder / CELLS, row, cells[0].index("run"), name_of))
    places = [head.index(name) for name in keys]
    return [found.get(tuple(row[place] if place < len(row) else "" for place in places), []) for row in body]
