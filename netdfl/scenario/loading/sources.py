"""The sources of a scenario's runs: the user's modules, and the files that the scenario names; whether they changed.

Everything that continues or reuses earlier runs (a resumed run, a replay, a table of a sweep, an exploration, a proof,
a blame) first compares the sources. Otherwise two experiments could be mixed in one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

from xxhash import xxh3_128

from netdfl.core.files import version_of
from netdfl.scenario.model.own_modules import ModuleSearch, find_modules, python_path
from netdfl.scenario.model.parts import own_parts
from netdfl.scenario.model.plugins import places
from netdfl.scenario.model.schema import Scenario

Digests: TypeAlias = dict[str, str]
"""Digests of the contents of files, by a name of each: its absolute path, unless a function says otherwise."""
_CHUNK = 1 << 24


def sources_of(scenario: Scenario) -> Digests:
    """Return the digests of all sources of the scenario's runs: modules by their names, named files by their paths."""
    modules = {f"module {name}": digest(file) for name, file in modules_of(scenario).items()}
    return modules | digests(named_files(scenario))


def files_of(scenario: Scenario) -> Digests:
    """Return the digests of all sources (modules, named files) of the scenario's runs, by their paths here."""
    return digests([*modules_of(scenario).values(), *named_files(scenario)])


def hash_of_sources(scenario: Scenario) -> str:
    """Return one hash of all sources (modules, named files) of the scenario's runs; empty if there are none."""
    return _hash(sources_of(scenario))


def hash_of_modules(scenario: Scenario) -> str:
    """Return one hash of the user's modules, equal on machines with equal modules; an empty text if there are none."""
    return _hash({name: digest(file) for name, file in modules_of(scenario).items()})


def _hash(found: Digests) -> str:
    return xxh3_128(json.dumps(found, sort_keys=True).encode()).hexdigest() if found else ""


def modules_of(scenario: Scenario) -> dict[str, Path]:
    """Return the files of the user's modules by their names; installed packages are left out."""
    return search_modules(scenario).files


def search_modules(scenario: Scenario) -> ModuleSearch:
    """Search the modules of the scenario's own parts and predicates, and all that these import, without importing them.

    So every process finds the same.
    """
    names = (*(part.kind for _, part in own_parts(scenario)), *scenario.explore.find)
    wanted = sorted({name.partition(":")[0] for name in names if ":" in name})
    if not wanted:
        return ModuleSearch({}, set())
    return find_modules(wanted, [*places(str(scenario.folder)), *python_path()])


def packages_of(scenario: Scenario) -> set[str]:
    """Return the canonical names of the installed packages that the user's parts come from, or their modules import."""
    tops = {name.partition(".")[0] for name in search_modules(scenario).others} - sys.stdlib_module_names - {"netdfl"}
    return {re.sub(r"[-_.]+", "-", name).lower() for top in tops for name in _distributions(top)}


@cache
def _distributions(top: str) -> Sequence[str]:
    """Return the installed packages that have a module `top`; most have its name, and looking through all is slow."""
    return [top] if version_of(top) is not None else metadata.packages_distributions().get(top, ())


def named_files(scenario: Scenario) -> list[Path]:
    """Return the absolute paths of files that `scenario` names, such as data, graphs and traces."""
    return sorted(set(_paths(json.loads(scenario.model_dump_json()))))


def _paths(value: object) -> Iterator[Path]:
    if isinstance(value, str) and value.startswith("/") and "\n" not in value and Path(value).is_file():
        yield Path(value)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _paths(item)


def digests(files: Iterable[Path]) -> Digests:
    """Return the digest of each file's contents."""
    return {str(file): digest(file) for file in files}


def changed_files(before: Mapping[str, str]) -> list[str]:
    """Return, as texts, which files are gone or differ from the digests `before`: `/home/me/graph.csv was edited`."""
    return [*edited_files(before), *(f"{name} is gone" for name in before if not Path(name).is_file())]


def edited_files(before: Mapping[str, str]) -> list[str]:
    """Return `changed_files` without files that are gone: files of another machine's run may exist only there."""
    return [f"{name} was edited" for name, was in before.items() if Path(name).is_file() and digest(Path(name)) != was]


def digest(file: Path) -> str:
    """Return the digest of a file's contents; a file is read again only if its size or time of change differs."""
    about = file.stat()
    return _digest_of(file, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=1024)
def _digest_of(file: Path, mtime_ns: int, nbytes: int) -> str:
    found = xxh3_128()
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()
