"""The map of a message's way in ARCHITECTURE.md names what a message meets, in both worlds, and nothing else."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.message_way import LINKS, PACKAGE, Name, names_on_the_way

ROOT = Path(__file__).resolve().parents[2]
WORLDS: dict[str, Any] = {
    "simulated": "simulated",
    "processes": {"kind": "tests.worlds.threads:THREADS", "shared_from": "1kB"},
}
"""Threads stand for processes, because one profiler sees all of them: the transport and its memory are the same."""
MOST = {"simulated": 40, "processes": 60}
MOST_HELPERS = 10
ENTRY = re.compile(r"^(?:\d+\.| *-) ", re.MULTILINE)
FILES = re.compile(r"\(([\w/]+\.py(?:, [\w/]+\.py)*)\)")


class Entry(NamedTuple):
    """A line of the map, with its names and files; `world` is empty where both have it."""

    world: str
    names: list[str]
    files: list[str]


def entries(text: str) -> Iterator[Entry]:
    for line in (" ".join(each.split()) for each in ENTRY.split(text)[1:]):
        world = re.search(r"\*(simulated|processes)\*", line)
        files = [file for found in FILES.findall(line) for file in found.split(", ")]
        yield Entry(world[1] if world else "", re.findall(r"`([A-Za-z_]\w*)`", line), files)


@cache
def the_map() -> tuple[list[Entry], list[Entry]]:
    """The stations, and the helpers."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    way, _, helpers = text.split("<!-- a message's way -->")[1].split("<!-- end -->")[0].partition("Ten small helpers")
    return list(entries(way)), list(entries(helpers))


@cache
def defined(file: str) -> set[str]:
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    module = ast.parse((Path(PACKAGE) / file).read_text(encoding="utf-8"))
    return {node.name for node in module.body if isinstance(node, kinds)}


def places(found: list[Entry]) -> set[Name]:
    return {Name(file, name) for _, names, files in found for name in names for file in files if name in defined(file)}


def of_world(world: str) -> list[Entry]:
    return [each for each in the_map()[0] if each.world in ("", world)]


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[Name]]:
    """What messages that are delivered, lost and duplicated meet in each world."""
    where = tmp_path_factory.mktemp("way")
    return {
        name: set().union(*(names_on_the_way(world, fate, where / name / fate) for fate in LINKS))
        for name, world in WORLDS.items()
    }


def test_each_thing_stands_on_the_map_once() -> None:
    stations, helpers = the_map()
    counts = Counter(name for each in (*stations, *helpers) for name in each.names)
    assert [name for name, times in counts.items() if times > 1] == []


@pytest.mark.parametrize("world", WORLDS)
def test_the_map_is_small(world: str) -> None:
    assert sum(len(each.names) for each in of_world(world)) <= MOST[world]
    assert sum(len(each.names) for each in the_map()[1]) <= MOST_HELPERS


def test_each_thing_is_in_a_file_of_its_line_and_each_file_has_one() -> None:
    for _, names, files in (*the_map()[0], *the_map()[1]):
        assert [name for name in names if not any(name in defined(file) for file in files)] == []
        assert [file for file in files if not defined(file) & set(names)] == []


@pytest.mark.parametrize("world", WORLDS)
def test_all_that_is_called_on_the_way_is_on_the_map(met: dict[str, set[Name]], world: str) -> None:
    assert met[world] - places(of_world(world)) - places(the_map()[1]) == set()


def test_all_that_is_on_the_map_is_called_on_the_way(met: dict[str, set[Name]]) -> None:
    for world in WORLDS:
        assert places(of_world(world)) - met[world] == set()
    assert places(the_map()[1]) - met["simulated"] - met["processes"] == set()
