"""The display of a run in a notebook: its progress, and its summary."""

from __future__ import annotations

import sys
from html import escape
from multiprocessing import parent_process
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Self

from netdfl.core.types import Json
from netdfl.record.status import FleetStatus
from netdfl.report.live import describe, summary
from netdfl.report.panel import Curves, waits
from netdfl.report.words import duration

MOST_NEWS = 5


def in_notebook() -> bool:
    """Return whether this is the main thread of a Jupyter kernel, which can display HTML, and no worker process."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    alone = parent_process() is None and current_thread() is main_thread()
    return alone and getattr(shell, "kernel", None) is not None


class NotebookView:
    """A display of a running fleet in one output of a notebook cell, which is redrawn."""

    def __init__(self) -> None:
        """Prepare; nothing is displayed before the context is entered."""
        self._shown: Any = None
        self._curves = Curves()
        self._news: list[str] = []
        self._last = ""

    def __enter__(self) -> Self:
        from IPython.display import HTML, display

        self._html = HTML
        self._shown = display(HTML(""), display_id=True)
        return self

    def __exit__(self, *raised: object) -> None:
        self._draw(self._last)

    def update(self, status: FleetStatus) -> None:
        """Display the fleet's current status."""
        self._curves.add(status.evaluation)
        self._last = progress_html(status, self._curves)
        self._draw(self._last)

    def note(self, text: str) -> None:
        """Display the note `text` below the status, with the latest notes before it."""
        self._news = [*self._news, text][-MOST_NEWS:]
        self._draw(self._last)

    def _draw(self, html: str) -> None:
        news = "".join(f"<div>{escape(text)}</div>" for text in self._news)
        if self._shown is not None:
            self._shown.update(self._html(html + news))


def progress_html(status: FleetStatus, curves: Curves) -> str:
    """Return a progress bar of rounds and the fleet's current metrics, as HTML."""
    done = f"{status.rounds_done} of {status.rounds} rounds, {duration(status.elapsed_s)}"
    bar = f'<progress max="{status.rounds}" value="{status.rounds_done}"></progress> {escape(done)}'
    rows = list(curves.beside(describe(status)).items())
    rows += [(f"node {wait.node}", waits(wait, status.elapsed_s)) for wait in status.waiting]
    return f"<div><b>{escape(status.scenario)}</b> {bar}</div>{_table(rows)}"


def summary_html(result: Json, run_path: Path) -> str:
    """Return the summary of a run as HTML."""
    head, lines, rows = summary(result, run_path)
    why = "".join(f"<div>{escape(line)}</div>" for line in lines)
    return f"<p><b>{escape(result['verdict'])}</b> {escape(head)}</p>{why}{_table(list(rows.items()))}"


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>"
