"""The commands that show a finished run: `report`, `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netdfl.cli.options import RunPath


def report(run: RunPath) -> None:
    """Write the report of a run, one self-contained HTML page, and print where it is.

    Examples:
        netdfl report runs/quickstart/latest
    """
    from netdfl.report.html import write_report

    print(write_report(run))


def export(
    run: RunPath,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="messages, metrics, events or waits.")],
    format: Annotated[str, typer.Option("--format", metavar="FORMAT", help="csv, jsonl or parquet.")] = "csv",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="By default TABLE.FORMAT here.")] = None,
) -> None:
    """Write a run's messages, metrics, events or waits as a file for other programs.

    Examples:
        netdfl export runs/quickstart/latest messages
        netdfl export runs/quickstart/latest metrics --format parquet --out metrics.parquet
    """
    from netdfl.record.export import export as export_table
    from netdfl.record.run import open_run

    print(export_table(open_run(run), table, format, out or Path(f"{table}.{format}")))  # type: ignore[arg-type]
