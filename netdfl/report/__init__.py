"""What a person sees of a run: the live view on the terminal and the HTML page afterwards."""

from __future__ import annotations

from pathlib import Path


def write_report(run_path: Path | str) -> Path:
    """Write `report.html` into a run directory and return its path; see `netdfl.report.html`."""
    # Imported here because it brings matplotlib, which no other command needs.
    from netdfl.report.html import write_report as write

    return write(run_path)
