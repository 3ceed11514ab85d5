"""The runs in a folder: found by what lies in them, named by where they lie, never outside of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from pydantic_core import to_json

from netdfl.core.errors import InputError
from netdfl.web.many import compare, summary
from netdfl.web.tables import find_tables

MOST_RUNS = 2000
DEPTH = 6


class Folder:
    """A run, or a folder with runs at any depth; links are not followed."""

    def __init__(self, root: Path) -> None:
        """Serve `root`. Raises InputError where there is no such folder."""
        if not root.is_dir():
            raise InputError(f"{root} is no folder; name a run, or a folder of runs, like runs/")
        self._root = root.resolve()
        self._paths: dict[str, Path] = {}
        self.only = self._name(self._root) if is_run(self._root) else None
        self._look()

    def find(self, name: str) -> Path | None:
        """The run that a page calls `name`; None where there is none."""
        if name not in self._paths:
            self._look()
        path = self._paths.get(name)
        return path if path is not None and is_run(path) else None

    def listed(self) -> bytes:
        """A row for each run, and the tables of sweeps and reproductions, as JSON."""
        self._look()
        rows = [{"id": name, **summary(path, self._root)} for name, path in self._paths.items()]
        return to_json({"runs": rows, "tables": find_tables(self._root, self._name)}, inf_nan_mode="null")

    def compared(self, names: Sequence[str]) -> bytes:
        """Curves of several runs, and in what their scenarios differ, as JSON."""
        found = [(name, path) for name in names if (path := self.find(name)) is not None]
        return to_json(compare(found), inf_nan_mode="null")

    def _name(self, path: Path) -> str:
        return sha256(os.fsencode(path)).hexdigest()[:16]

    def _look(self) -> None:
        self._paths = {self._name(path): path for path in runs_below(self._root)}


def is_run(path: Path) -> bool:
    """Whether a run lies at `path`: its scenario, and something that came of it."""
    beside = ("graph.json", "store", "result.json")
    return (
        not path.is_symlink() and (path / "scenario.yaml").is_file() and any((path / name).exists() for name in beside)
    )


def runs_below(root: Path) -> list[Path]:
    """The runs at or below `root`, the newest names first, at most `MOST_RUNS`."""
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
