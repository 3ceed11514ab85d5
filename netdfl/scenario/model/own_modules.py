"""The search for a user's modules by the text of their imports, without importing them.

So every process finds the same, whatever it has imported, and modules that are imported only later are found, too.
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

_LIBRARY = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}


class FileState(NamedTuple):
    """The time of change and the size of a file; while both stay the same, so do its contents."""

    changed_ns: int
    nbytes: int


class ModuleSearch(NamedTuple):
    """The result of a search: the files of the modules that were found, by their names, and the names of all others."""

    files: dict[str, Path]
    others: set[str]


def find_modules(names: Iterable[str], folders: Sequence[Path]) -> ModuleSearch:
    """Search `folders`, the first ones first, for modules by name, and for all modules that these import at any place.

    Folders of installed packages and of Python's library are not searched, and netdfl's own modules are left out.
    """
    folders = [folder for folder in folders if folder.is_dir() and not _is_of_others(folder)]
    holding = cache(lambda top: [folder for folder in folders if _has(folder, top)])  # most names lie in none of them
    files: dict[str, Path] = {}
    others: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in files or name in others:
            continue
        top = name.partition(".")[0]
        file = None if top == "netdfl" else _file_of(name, holding(top))
        if file is None:
            others.add(name)
        else:
            files[name] = file
            left.extend([*_imported(name, file, state_of(file)), *_packages(name)])
    folders_of_files = {package for name in files for package in _packages(name)}
    others = {name for name in others - folders_of_files if not files.keys() & _packages(name)}
    return ModuleSearch(files, others)


def python_path() -> list[Path]:
    """Return the folders of the Python path."""
    return list(_resolved(tuple(sys.path), os.getcwd()))


@lru_cache(1)
def _resolved(places: Sequence[str], of: str) -> Sequence[Path]:
    """Return the absolute paths of the folders `places`, which are relative to the working directory `of`."""
    return [Path(of, place).resolve() for place in places]


def _packages(name: str) -> set[str]:
    """Return the names of the packages that a module lies in: of `a.b.c`, `a` and `a.b`."""
    parts = name.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def _has(folder: Path, top: str) -> bool:
    return folder.joinpath(top).is_dir() or folder.joinpath(f"{top}.py").is_file()


def _file_of(name: str, folders: Sequence[Path]) -> Path | None:
    for folder in folders:
        place = folder.joinpath(*name.split("."))
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.is_file():
                return file.resolve()
    return None


def state_of(file: Path) -> FileState | None:
    """Return the state of a file; None if it is gone."""
    try:
        about = file.stat()
    except OSError:
        return None
    return FileState(about.st_mtime_ns, about.st_size)


@lru_cache(10_000)
def _imported(name: str, file: Path, state: FileState | None) -> Sequence[str]:
    """Return the names that the module imports; cached, as searches repeat, as long as its file stays in this state."""
    return tuple(_imports(name, file))


def _imports(name: str, file: Path) -> Iterator[str]:
    """Yield the absolute names that the module imports; of `from a import b`, `a` and `a.b`, as either may be one."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError, OSError):  # none that a node could import
        return
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for each in ast.walk(tree):
        if isinstance(each, ast.Import):
            yield from (alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - each.level + 1]) if each.level else ""
            home = ".".join(filter(None, (base, each.module)))
            yield from filter(None, (home, *(".".join(filter(None, (home, alias.name))) for alias in each.names)))


@cache
def _is_of_others(folder: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & set(folder.parts)) or folder.resolve() in _LIBRARY
