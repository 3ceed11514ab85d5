"""The search for runs in a folder, never outside of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from netdfl.core.errors import InputError

MOST_RUNS = 2000
DEPTH = 6


def is_run(path: Path) -> bool:
    """Return whether a run lies at `path`: its scenario's file, and at least one of its other files."""
    beside = ("graph.json", "store", "result.json")
    return (
        not path.is_symlink() and (path / "scenario.yaml").is_file() and any((path / name).exists() for name in beside)
    )


def runs_below(root: Path) -> list[Path]:
    """Return the runs at or below `root`, the newest names first, at most `MOST_RUNS`; links are not followed."""
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
            folders = sorted(
                entry.path for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name[0] != "."
            )
    except OSError:
        return
    for folder in folders:
        yield from _walk(Path(folder), depth - 1)


def check_folder(root: Path) -> Path:
    """Return the true path of a folder of runs. Raises InputError if there is none."""
    if not root.is_dir():
        raise InputError(f"{root} is no folder; name a run, or a folder of runs, like runs/")
    return root.resolve()


def run_within(path: Path, root: Path) -> Path:
    """Return the true path of the run at `path`, which may be a link such as `latest`, inside the folder `root`.

    Raises:
        InputError: No run lies there, or the path leads out of the folder.
    """
    try:
        true = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InputError(f"{path} is not a run: there is no such folder") from error
    folder = root.resolve()
    if folder not in true.parents:
        where = f"{path} leads to {true}, which" if true != path.absolute() else f"{path}"
        raise InputError(f"{where} lies outside of {root}; name the folder that holds it with --in")
    if not is_run(true):
        raise InputError(f"{path} is not a run: it has no scenario.yaml with a result, a store or a graph beside it")
    return true
