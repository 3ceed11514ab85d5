"""What a command says of a finished run."""

from __future__ import annotations

from typing import Any


def sum_up(view: Any, finished: Any) -> int:
    """Print what a run came to; return its exit code."""
    page = finished.path / "report.html"
    view.summary(finished.result, finished.path, page if page.exists() else None)
    return int(finished.exit_code)
