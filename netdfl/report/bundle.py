"""The page's script and style as two texts, so that the page is one file: no build step, and nothing to load.

What is ours are ES modules that name what they import from each other; here each becomes a function that gives what it
exports, behind those that it needs.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"
LIBRARIES = ("uplot-1.6.32.min.js", "cytoscape-3.34.4.min.js")
STYLES = ("vendor/uplot-1.6.32.min.css", "page.css")
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)


@cache
def script(entry: str = "main.js") -> str:
    """The libraries, then the modules that `entry` needs, then `entry`."""
    libraries = [_read(f"vendor/{name}") for name in LIBRARIES]
    own = [_as_function(name) for name in _in_order(entry.removesuffix(".js"), set())]
    return "\n".join([*libraries, '(() => {\n"use strict";\nconst modules = {};', *own, "})();"])


@cache
def style() -> str:
    """All style sheets."""
    return "\n".join(map(_read, STYLES))


def digest(text: str) -> str:
    """How a content security policy names an inline text that it lets pass."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _as_function(name: str) -> str:
    text = _read(f"{name}.js")
    exported = ", ".join(match[1] for match in _EXPORT.finditer(text))
    body = _EXPORT.sub("", _IMPORT.sub(r"const \1 = modules.\2;", text))
    return f"modules.{name} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();"


def _in_order(name: str, seen: set[str]) -> Iterator[str]:
    if name in seen:
        return
    seen.add(name)
    for match in _IMPORT.finditer(_read(f"{name}.js")):
        yield from _in_order(match[2], seen)
    yield name


def _read(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
