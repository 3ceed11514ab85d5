"""The commands of README and docs: found in the pages, and understood by the real command line, without a run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.main import get_command

from netdfl.cli.commands import make_app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND_LINE: Any = get_command(make_app())
SHELLS = ("sh", "console")
STARTED = re.compile(r"(?:[A-Z_]+=\S+ |salloc .*|ray .*)?netdfl [a-z]")
"""How a line begins that is a command of netdfl, in a block without a language."""
INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)


class Shown(NamedTuple):
    """A command of a page, on one line, without its comment, and the lines that it is shown to print."""

    page: str
    kind: str
    command: str
    lines: list[str]


def name_of(page: Path) -> str:
    """A page's path in `docs`, or `README.md`."""
    name = str(page.relative_to(ROOT))
    return name if name == "docs/README.md" else name.removeprefix("docs/")


def shown_commands(page: Path) -> list[Shown]:
    """The commands of a page: all lines of its shell blocks, those of netdfl in blocks without a language."""
    text, name = page.read_text(encoding="utf-8"), name_of(page)
    found = []
    fenced = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for kind, body in fenced.findall(text):
        if kind in SHELLS or not kind:
            found += [Shown(name, kind, *each) for each in commands(body) if kind or STARTED.match(each[0])]
    for body in INDENTED.findall(fenced.sub("", text)):
        found += [Shown(name, "", *each) for each in commands(re.sub("^ +", "", body, flags=re.M))]
    return [each for each in found if each.kind or STARTED.match(each.command)]


def commands(body: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a block, each with what follows it up to the next, if the block has prompts."""
    joined = re.sub(r"\\\n\s*", "", body)
    if re.search(r"^\$ ", joined, re.MULTILINE):
        for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
            first, *lines = part.splitlines()
            yield first, lines
    else:
        for line in joined.splitlines():
            if bare := re.sub(r"(?:^|\s+)#\s.*", "", line).strip():
                yield bare, []


def of_netdfl(line: str) -> Iterator[list[str]]:
    """The words after `netdfl`, for each of its commands in a line of a shell."""
    tokens = shlex.shlex(line, posix=True, punctuation_chars=True)
    tokens.whitespace_split = True
    words: list[str] = []
    skip = False
    for token in [*tokens, ";"]:
        if set(token) <= set("();&|"):
            places = [place for place, word in enumerate(words) if word.rpartition("/")[2] == "netdfl"]
            if places and words[places[-1] + 1 :]:
                yield words[places[-1] + 1 :]
            words = []
        elif set(token) <= set("<>"):
            skip = True
        elif skip:
            skip = False
        else:
            words.append(token)


def mistake(words: list[str]) -> str:
    """What the command line says against a command, by its options and arguments alone; empty: nothing."""
    command, name = COMMAND_LINE, "netdfl"
    words = [re.sub(r"\$\w+", "0", word) for word in words]
    while known := getattr(command, "commands", None):
        name = words.pop(0) if words else ""
        if name not in known:
            return f"no command {name!r}"
        command = known[name]
    try:
        command.make_context(name, words)
    except typer.Exit:
        return ""
    except Exception as error:
        return str(error) or repr(error)
    return ""
