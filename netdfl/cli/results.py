"""The commands about finished runs: `report`, `measure`, `export`, `serve`, `replay`, `diff` and `blame`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from netdfl.cli.options import Format, OutputFormat, RunPath, print_json
from netdfl.core.errors import InputError

What = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        help="messages, metrics, events, waits or resources; trace, graph; model; or a tracker: tensorboard, mlflow.",
    ),
]
FileFormat = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="csv, jsonl, parquet; of a trace pftrace or json.")
]
FileOut = Annotated[
    str | None, typer.Option("--out", metavar="FILE", help="By default named after it, here; - is the standard output.")
]
WhoseModel = Annotated[int | None, typer.Option("--node", metavar="N", help="Whose model; by default the average.")]


def report(run: RunPath) -> None:
    """Write the report of a run, one self-contained HTML page, and print where it is.

    Examples:
        netdfl report runs/quickstart/latest
    """
    from netdfl.report.html import write_report

    print(write_report(run))


def measure(
    run: RunPath,
    what: Annotated[str, typer.Argument(metavar="WHAT", help="sharpness, landscape or gap.")],
    samples: Annotated[int, typer.Option("--samples", metavar="N", min=1, help="Training examples it takes.")] = 5000,
    local: Annotated[
        int, typer.Option("--local", metavar="N", min=0, help="Nodes' own models beside the average.")
    ] = 3,
    points: Annotated[int, typer.Option("--points", metavar="N", min=3, help="Of a landscape along a line.")] = 41,
    grid: Annotated[int, typer.Option("--grid", metavar="N", min=3, help="Along each side of a plane.")] = 21,
    reach: Annotated[float, typer.Option("--reach", metavar="R", min=0.001, help="How far a landscape goes.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="What directions are drawn from.")] = 0,
) -> None:
    """Measure the minimum that a run has found, at its last models, and write it for the report.

    sharpness: largest eigenvalues and trace of the training loss's Hessian (Lanczos, Hutchinson). landscape: the loss
    along random directions, normalized by filter. gap: metrics on training and test data. Directions differ by chance:
    compare runs by the same seed.

    Examples:
        netdfl measure runs/quickstart/latest sharpness
        netdfl measure runs/quickstart/latest landscape --grid 31
    """
    from netdfl.measure.command import Settings
    from netdfl.measure.command import measure as measure_run
    from netdfl.running.models import open_run as open_trained

    settings = Settings(samples=samples, local=local, points=points, grid=grid, reach=reach, seed=seed)
    print(measure_run(open_trained(run), what, settings, lambda line: print(line, flush=True)))


def export(run: RunPath, what: What, format: FileFormat = None, out: FileOut = None, node: WhoseModel = None) -> None:
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


def replay(
    run: RunPath,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="MOMENT", help="12.3s, 'lost 2->3 #5', 'crash 4', stall, end; else the start."),
    ] = None,
    until_round: Annotated[
        int | None, typer.Option("--until-round", metavar="R", min=0, help="When the first node begins round R.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Keep what is played as a run of its own.")
    ] = None,
) -> None:
    """Play a simulated run again, stop at a moment, and open a prompt: look, step, go back, change one thing.

    Examples:
        netdfl replay runs/quickstart/latest --until 12.3s
        netdfl replay runs/quickstart/latest --until 'lost 2->3 #5'
    """
    if until is not None and until_round is not None:
        raise InputError("--until and --until-round name two moments; give one of them")
    from netdfl.replaying.prompt import Prompt
    from netdfl.replaying.replay import replay as play

    with play(run, out=out) as replayed:
        if until is not None or until_round is not None:
            replayed.until(until if until is not None else f"round {until_round}")
        prompt = Prompt(replayed)
        prompt.cmdloop()
    raise typer.Exit(1 if prompt.failed and not prompt.typed else 0)


def diff(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    second: Annotated[Path, typer.Argument(metavar="RUN", help="Another.")],
    format: OutputFormat = Format.TEXT,
) -> None:
    """Name the first event in which two runs differ, and what followed; the exit code is 1 if they differ.

    Examples:
        netdfl diff runs/quickstart/latest runs/other/latest
    """
    from netdfl.record.run import open_run
    from netdfl.replaying.diff import diff as compare

    found = compare(open_run(first), open_run(second))
    if format is Format.JSON:
        print_json(found.to_json())
    else:
        print(found.text)
    raise typer.Exit(0 if found.equal else 1)


Target = Annotated[
    str | None,
    typer.Option("--target", metavar="TARGET", help="end, bytes, accuracy, 'accuracy: 90%' or 'consensus: 0.01'."),
]
ByMessage = Annotated[bool, typer.Option("--messages", help="Blame each lost message, not the losses of its link.")]
TableRuns = Annotated[int, typer.Option("--runs", metavar="N", min=0, help="The most candidates with a run each.")]
SetRuns = Annotated[int, typer.Option("--set-runs", metavar="N", min=0, help="The most runs for the set.")]
But = Annotated[str, typer.Option("--but", metavar="KINDS", help="Kinds to leave out: deadline, slowness, event, ...")]
BlameOut = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="By default blamed/NAME.")]


def blame(
    run: RunPath,
    target: Target = None,
    messages: ByMessage = False,
    runs: TableRuns = 200,
    set_runs: SetRuns = 200,
    but: But = "",
    out: BlameOut = None,
) -> None:
    """Say which nodes, links and events cost a simulated run its time, by running it without each of them.

    Each possible cause is taken out, and the run is repeated with the same random draws: a node's slowness, a link's
    losses or extra delay, an up- or downlink's or a core link's rate, a deadline, an event. Below the table stands a
    set that explains nine tenths of the gain of a run without any of them, none of which can be left out. The scenario
    without it is written, and the run's page has the table (netdfl report, netdfl serve). Outcomes of runs are stored,
    so that the command goes on where it was interrupted (130).

    Examples:
        netdfl blame runs/quickstart/latest
        netdfl blame runs/mine/latest --target 'accuracy: 90%' --messages
    """
    from rich.console import Console

    from netdfl.blame.command import blame as blame_run
    from netdfl.blame.run import BlameLimits, default_folder, open_blame
    from netdfl.blame.targets import read_target
    from netdfl.prove.bound import names_in

    chosen = None if target is None else read_target(target)
    folder = out or default_folder(run)
    limits = BlameLimits(runs, set_runs)
    asked = open_blame(run, chosen, messages=messages, but=names_in(but), folder=folder, limits=limits)
    raise typer.Exit(blame_run(asked, folder, Console()))


Web = Annotated[
    bool, typer.Option("--web", help="Show the run on a page at an address of this machine while it goes on.")
]


def serve(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="A run, or a folder of runs; by default runs.")] = Path(
        "runs"
    ),
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0: any that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it where there is a desktop.")] = True,
    write: Annotated[
        bool, typer.Option("--write", help="Let the page tag runs, archive them, throw them away, repeat them.")
    ] = False,
    metrics: Annotated[
        Path | None,
        typer.Option("--metrics", metavar="FILE", help="Holds the bearer token for /metrics; made if it is not there."),
    ] = None,
) -> None:
    """Show runs, and those that go on, as pages at an address of this machine, until Ctrl-C.

    Examples:
        netdfl serve
        netdfl serve runs/quickstart/latest --port 8000 --no-browser
        netdfl serve runs --write
        netdfl serve runs --port 8765 --no-browser --metrics scrape.token
    """
    from netdfl.web.serving import serve as serve_runs

    serve_runs(runs, port, say=partial(print, flush=True), open_browser=browser, write=write, metrics=metrics)


def beside(wanted: bool, view: Any) -> AbstractContextManager[Any]:
    """Return a context with the server of a run's page, or with None if the server is not `wanted`.

    Raises InputError if Starlette is not installed.
    """
    if not wanted:
        return nullcontext()
    from netdfl.web.beside import RunPageServer

    return RunPageServer(view.note)
