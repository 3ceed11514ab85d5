"""The command `serve`, and the page beside a run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

Web = Annotated[
    bool, typer.Option("--web", help="Show the run on a page at an address of this machine while it goes on.")
]


def serve(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="A run, or a folder of runs; by default runs.")] = Path(
        "runs"
    ),
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0: any that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it where there is a desktop.")] = True,
) -> None:
    """Show runs, and those that go on, as pages at an address of this machine, until Ctrl-C.

    Examples:
        netdfl serve
        netdfl serve runs/quickstart/latest --port 8000 --no-browser
    """
    from netdfl.web.serving import serve as serve_runs

    serve_runs(runs, port, say=lambda address: print(address, flush=True), open_browser=browser)


def beside(wanted: bool, view: Any) -> AbstractContextManager[Any]:
    """The server beside a run, where it is wanted. Raises InputError where it is not installed."""
    if not wanted:
        return nullcontext()
    from netdfl.web.beside import Beside

    return Beside(view.note)
