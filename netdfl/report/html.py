"""The report: one self-contained HTML page about one run, without a build step or anything to load.

netdfl's own scripts are ES modules that import each other by name; here each becomes a function that returns its
exports, after the modules that it needs.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import get_args

from jinja2 import Environment, FileSystemLoader
from pydantic_core import to_json

from netdfl.core.types import Json
from netdfl.record.directory import RunDirectory
from netdfl.record.judge import Verdict
from netdfl.record.run import Run, open_run
from netdfl.report.data import page_data

ASSETS = Path(__file__).parent / "assets"
LIBRARIES = ("uplot-1.6.32.min.js", "cytoscape-3.34.4.min.js")
STYLES = ("vendor/uplot-1.6.32.min.css", "page.css")
_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)


@cache
def script(entry: str = "main.js") -> str:
    """Return all JavaScript of the page: the libraries, netdfl's modules that `entry` needs, and `entry` itself."""
    libraries = [_read(f"vendor/{name}") for name in LIBRARIES]
    own = [_as_function(name) for name in _in_order(entry.removesuffix(".js"), set())]
    return "\n".join([*libraries, '(() => {\n"use strict";\nconst modules = {};', *own, "})();"])


@cache
def style() -> str:
    """Return all style sheets of the page as one text."""
    return "\n".join(map(_read, STYLES))


def digest(text: str) -> str:
    """Return the hash by which a content security policy allows an inline script or style."""
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


def write_report(run_path: Path | str) -> Path:
    """Write `report.html` into a run directory, finished or not, and return its path.

    Raises:
        InputError: there is no run at `run_path`, or its files are damaged.
        RunError: the page can't be written.
    """
    run = open_run(run_path)
    return RunDirectory(run.path).write("report.html", render(run))


def render(run: Run) -> str:
    """Render the HTML page of `run` as text. Raises InputError if its files are damaged, or of another version."""
    return fill(page_data(run), "default-src 'none'; img-src data:")


def fill(data: Json, policy: str, live: str = "", entry: str = "main.js") -> str:
    """Return the HTML of a page with `data`, under the given content security `policy`.

    The page fetches later data from the address `live`, if it is not empty. `entry` is its main script.
    """
    page = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    # Cytoscape and uPlot set styles of single elements, which needs no leave; the one sheet and script have digests.
    policy += f"; script-src {digest(script(entry))}; style-src {digest(style())}"
    head = data["head"]
    return page.get_template("page.html").render(
        head,
        tone=head["verdict"] if head["verdict"] in get_args(Verdict) else "unknown",
        sections=data.get("sections", ()),
        scenario=data.get("scenario"),
        policy=policy,
        live=live,
        data=_inert(to_json(data, inf_nan_mode="null").decode()),
        script=script(entry),
        style=style(),
    )


def _inert(text: str) -> str:
    """Return JSON text in which no character can end the HTML element that contains it."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
