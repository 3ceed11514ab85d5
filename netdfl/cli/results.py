"""The commands that show a finished run: `report`, `export`."""

from __future__ import annotations

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
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="messages, metrics, events or waits; trace, graph; or a tracker: tensorboard, mlflow."
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="csv, jsonl, parquet; of a trace pftrace or json.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="By default named after it, here; - is the standard output."),
    ] = None,
) -> None:
    """Write a run's tables, trace or graph for other programs, or hand it to a tracker.

    Examples:
        netdfl export runs/quickstart/latest messages
        netdfl export runs/quickstart/latest metrics --format parquet --out metrics.parquet
        netdfl export runs/quickstart/latest trace --out run.pftrace
        netdfl export runs/quickstart/latest tensorboard
    """
    from netdfl.exports.export import export as export_run
    from netdfl.record.run import open_run

    if written := export_run(open_run(run), what, format, out):
        print(written)
