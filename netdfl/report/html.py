"""The report: one self-contained HTML page about one run, with the run's data inside."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from pydantic_core import to_json

from netdfl.core.types import Json
from netdfl.record.run import Run, RunDirectory, open_run
from netdfl.report.bundle import digest, script, style
from netdfl.report.data import page_data

TONES = {"pass": "pass", "done": "done", "fail": "fail", "unknown": "unknown"}


def write_report(run_path: Path | str) -> Path:
    """Write `report.html` into a run directory, finished or not, and return its path.

    Raises:
        InputError: there is no run at `run_path`, or its files are damaged.
        RunError: the page can't be written.
    """
    run = open_run(run_path)
    return RunDirectory(run.path).write("report.html", render(run))


def render(run: Run) -> str:
    """Render the page as text. Raises InputError where the run's files are damaged, or of another version."""
    return fill(page_data(run), "default-src 'none'; img-src data:")


def fill(data: Json, policy: str, live: str = "", entry: str = "main.js") -> str:
    """The page around `data`, under a content security `policy`; `live` is the address from which more will come."""
    page = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    # Cytoscape and uPlot set styles of single elements, which needs no leave; the one sheet and script have digests.
    policy += f"; script-src {digest(script(entry))}; style-src {digest(style())}"
    head = data["head"]
    return page.get_template("page.html").render(
        head,
        tone=TONES.get(head["verdict"], "unknown"),
        sections=data.get("sections", ()),
        scenario=data.get("scenario"),
        policy=policy,
        live=live,
        data=_inert(to_json(data, inf_nan_mode="null").decode()),
        script=script(entry),
        style=style(),
    )


def _inert(text: str) -> str:
    """JSON that ends no element of the page, whatever its texts hold."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
