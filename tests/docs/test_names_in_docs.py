"""What a page names is there: files, modules, commands with their options, names of the package."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from netdfl.cli.commands import make_app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TICKED = re.compile(r"`([^`\n]+)`")
OWN = re.compile(r"(?:python )?((?:netdfl|tests|benchmarks|scenarios|nodes|protos|docs)/[\w./*-]*\w)")


def options_of(command: Any) -> set[str]:
    """The options of a command; of commands of two words, those of all that begin with the first."""
    own = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
    return own.union(*map(options_of, getattr(command, "commands", {}).values()))


COMMANDS = {
    name: options_of(command)
    for name, command in get_command(make_app()).commands.items()  # type: ignore[attr-defined]
}
LABELS = frozenset({"netdfl.launcher"})
"""What looks like a name of the package, and is a label of a container."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert list(_gone(text)) == []


def test_what_is_gone_is_found() -> None:
    gone = [
        "netdfl rn x",
        "netdfl run x --ot y",
        "netdfl/no.py",
        "python -m netdfl.no",
        "netdfl.no",
        "netdfl.testing.no",
    ]
    text = " ".join(f"`{each}`" for each in (*gone, "netdfl run x --out y", "netdfl.run", "netdfl/running/run.py"))
    assert set(_gone(text)) == set(gone)


def _gone(text: str) -> Iterator[str]:
    for ticked in TICKED.findall(text):
        path, module = OWN.match(ticked), re.match(r"python -m ([\w.]*\w)", ticked)
        if path and not any(ROOT.glob(path[1])):
            yield ticked
        if module and not _is_module(module[1]):
            yield ticked
        if re.fullmatch(r"netdfl(\.\w+)+", ticked) and ticked not in LABELS and not _is_name(ticked):
            yield ticked
    for line in re.findall(r"(?:`|^\$ )(netdfl [a-z][^`\n|]*)", text, re.MULTILINE):
        _, command, *words = line.split()
        known = COMMANDS.get(command)
        if known is None or any(word not in known for word in words if re.fullmatch(r"--[a-z][a-z-]*", word)):
            yield line


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _is_name(name: str) -> bool:
    words = name.split(".")
    for end in range(len(words), 0, -1):
        if _is_module(".".join(words[:end])):
            found = importlib.import_module(".".join(words[:end]))
            for word in words[end:]:
                found = getattr(found, word, None)
            return found is not None
    return False
