"""The runs in a folder, never outside of it, and the tables that sweeps and reproductions leave there."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from netdfl.core.errors import InputError
from netdfl.core.files import read_plain
from netdfl.web.many import compare, summary

MOST_RUNS = 2000
DEPTH = 6


class RunFolder:
    """A run, or a folder with runs at any depth; links are not followed."""

    def __init__(self, root: Path) -> None:
        """Serve `root`. Raises InputError if there is no such folder."""
        if not root.is_dir():
            raise InputError(f"{root} is no folder; name a run, or a folder of runs, like runs/")
        self._root = root.resolve()
        self._paths: dict[str, Path] = {}
        self.only = self._name(self._root) if is_run(self._root) else None
        self._look()

    def find(self, name: str) -> Path | None:
        """Return the run with a page's `name`; None if there is none."""
        if name not in self._paths:
            self._look()
        path = self._paths.get(name)
        return path if path is not None and is_run(path) else None

    def listed(self) -> bytes:
        """Return a row for each run, and the tables of sweeps and reproductions, as JSON."""
        self._look()
        rows = [{"id": name, **summary(path, self._root)} for name, path in self._paths.items()]
        return to_json({"runs": rows, "tables": find_tables(self._root, self._name)}, inf_nan_mode="null")

    def compared(self, names: Sequence[str]) -> bytes:
        """Return curves of several runs, and the differences of their scenarios, as JSON."""
        found = [(name, path) for name in names if (path := self.find(name)) is not None]
        return to_json(compare(found), inf_nan_mode="null")

    def _name(self, path: Path) -> str:
        return sha256(os.fsencode(path)).hexdigest()[:16]

    def _look(self) -> None:
        self._paths = {self._name(path): path for path in runs_below(self._root)}


def is_run(path: Path) -> bool:
    """Return whether a run lies at `path`: its scenario, and at least one of its other files."""
    beside = ("graph.json", "store", "result.json")
    return (
        not path.is_symlink() and (path / "scenario.yaml").is_file() and any((path / name).exists() for name in beside)
    )


def runs_below(root: Path) -> list[Path]:
    """Return the runs at or below `root`, the newest names first, at most `MOST_RUNS`."""
    found: list[Path] = []
    for path in _walk(root, DEPTH):
        found.append(path)
        if len(found) == MOST_RUNS:
            break
    return sorted(found, key=lambda path: path.name, reverse=True)


def _walk(path: Path, depth: int) -> Iterator[Path]:
    if is_run(path):
        yield path
        return
    if depth == 0:
        return
    try:
        with os.scandir(path) as entries:
            folders = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for folder in folders:
        yield from _walk(Path(folder), depth - 1)


MOST_TABLES, MOST_ROWS = 40, 500
CELLS = "cells"
"""The folder of the runs beside a table, and the name of the table with a row for each."""


def find_tables(root: Path, name_of: Callable[[Path], str]) -> list[dict[str, Any]]:
    """Return each table below `root`: its head, its rows, and the names of the runs of each row."""
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
    """Return the runs that a row names in its column."""
    if not 0 <= column < len(row):
        return []
    names = [part.strip() for part in row[column].split()]
    return [name_of(cells / name) for name in names if name and "/" not in name and (cells / name).is_dir()]


def _of_points(folder: Path, head: list[str], body: list[list[str]], name_of: Callable[[Path], str]) -> list[list[str]]:
    """Return the runs of a table of means: of the rows of `cells.csv` with the same values."""
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
