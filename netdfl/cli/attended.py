"""The commands for an unfinished run of another terminal: `stop` and `logs`."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from netdfl.cli.options import RunPath
from netdfl.core.errors import InputError

TICK_S = 0.2
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended, and print its verdict.")]
OfNode = Annotated[int | None, typer.Option("--node", metavar="N", min=0, help="Of this node alone.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until the run ends.")]


def stop(run: RunPath, wait: Wait = True) -> None:
    """Ask a run of this machine to end in good order, as Ctrl-C in its terminal does: with its result and report.

    A second time, while it ends, it leaves at once.

    Examples:
        netdfl stop runs/quickstart/latest
    """
    from netdfl.record.directory import is_held
    from netdfl.record.holder import ask_to_stop, find_holder
    from netdfl.record.run import open_run
    from netdfl.report.live import summary_text

    path = open_run(run).path
    if not is_held(path):
        raise InputError(f"{run} does not go on: no process of this machine holds it")
    holder = find_holder(path)
    if holder is None or not ask_to_stop(path):
        raise InputError(f"{run} goes on, and this system does not let you ask its process; press Ctrl-C where it runs")
    print(f"asked process {holder} to end the run", file=sys.stderr)
    if not wait:
        return
    while is_held(path):
        time.sleep(TICK_S)
    ended = open_run(path)
    print(summary_text(ended.result, run) if (path / "result.json").exists() else f"{run} has ended without a result")


def logs(run: RunPath, node: OfNode = None, follow: Follow = False) -> None:
    """Print what the processes of a run's nodes printed, while it goes on or afterwards.

    Examples:
        netdfl logs runs/quickstart/latest
        netdfl logs runs/quickstart/latest --node 3 --follow
    """
    from netdfl.record.directory import is_held
    from netdfl.record.logs import NodeLogs
    from netdfl.record.logs import follow as followed
    from netdfl.record.run import open_run

    path = open_run(run).path
    found = NodeLogs(path, node)
    if not found.are_there and not (follow and is_held(path)):
        if node is not None and (path / "logs").is_dir():
            raise InputError(f"{run} has no log of node {node}; without --node you get those that are there")
        print(f"{run} has no logs: nodes of a simulated run print where the run itself does", file=sys.stderr)
        return
    lines = followed(found, lambda: is_held(path), lambda: time.sleep(TICK_S)) if follow else found.new(last=True)
    for whose, text in lines:
        print(text if node is not None else f"{whose}: {text}", flush=follow)
