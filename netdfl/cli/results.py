"""The commands that show a finished run: `report`, `export`."""

from __future__ import annotations

import sys
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
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="messages, metrics, events or waits; trace, graph; model; or a tracker: tensorboard, mlflow.",
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
    node: Annotated[
        int | None, typer.Option("--node", metavar="N", help="Whose model; by default the average.")
    ] = None,
) -> None:
    """Write a run's tables, trace, graph or trained model for other programs, or hand it to a tracker.

    A model is a folder with model.safetensors and a state_dict, model.pt. To build it, modules of your own that the
    run's scenario names are imported, and its data are read.

    Examples:
        netdfl export runs/quickstart/latest messages
        netdfl export runs/quickstart/latest metrics --format parquet --out metrics.parquet
        netdfl export runs/quickstart/latest trace --out run.pftrace
        netdfl export runs/quickstart/latest tensorboard
        netdfl export runs/quickstart/latest model --out model
    """
    if what == "model":
        from netdfl.running.models import export_model
        from netdfl.running.models import open_run as open_trained

        print(export_model(open_trained(run), Path(out or "model"), node))
        return
    from netdfl.exports.export import export as export_run
    from netdfl.record.run import open_run

    found = open_run(run)
    if what in ("messages", "trace") and not found.sampling.is_all:
        print(f"not all messages are in it: {found.sampling.sentence}", file=sys.stderr)
    if written := export_run(found, what, format, out):
        print(written)
