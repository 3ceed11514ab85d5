"""A plain installation of netdfl, in this process: what only `dev` and extras bring is hidden from netdfl's imports."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import tomllib
from collections.abc import Iterator, Set
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ADDED = {
    "test_documented_commands.py": (),
    "test_lecture.py": (),
    "test_tuning_page.py": (),
    "test_your_network_page.py": (),
    "test_tutorial.py": ("pandas", "pytest"),
    "test_own_task_page.py": ("pandas",),
}
"""The tests that run a page's commands in this process, and the packages that the page says to add."""


def brought() -> set[str]:
    """The distributions that a plain installation has: what netdfl depends on, and all that these depend on."""
    found, left = {"netdfl"}, list(PROJECT["dependencies"])
    while left:
        asked = Requirement(left.pop())
        name = canonicalize_name(asked.name)
        if name in found or not (asked.marker is None or asked.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        left += metadata.requires(name) or []
    return found


@cache  # all distributions are asked, which takes half a second
def hidden(but: tuple[str, ...] = ()) -> Set[str]:
    """The names of modules that are installed here, and are not in a plain installation with the packages `but`."""
    there = {*brought(), *but}
    homes = metadata.packages_distributions()
    return {top for top, names in homes.items() if not there & {canonicalize_name(name) for name in names}}


@contextmanager
def plain_installation(monkeypatch: pytest.MonkeyPatch, but: tuple[str, ...] = ()) -> Iterator[None]:
    """In the context no module of netdfl finds what a plain installation with the packages `but` has not."""
    gone = hidden(but)
    usual, by_name, find = builtins.__import__, importlib.import_module, importlib.util.find_spec

    def refuse(name: str) -> None:
        if name.partition(".")[0] in gone:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    def importing(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if not level and str((globals or {}).get("__name__", "")).partition(".")[0] == "netdfl":
            refuse(name)
        return usual(name, globals, locals, fromlist, level)

    def import_module(name: str, package: str | None = None) -> Any:
        refuse(name)
        return by_name(name, package)

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name.partition(".")[0] in gone else find(name, package)

    with monkeypatch.context() as patched:
        patched.setattr(builtins, "__import__", importing)
        patched.setattr(importlib, "import_module", import_module)
        patched.setattr(importlib.util, "find_spec", find_spec)
        yield
