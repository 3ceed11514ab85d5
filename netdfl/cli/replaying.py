"""The commands that play a run again, and compare two: `replay`, `diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netdfl.cli.options import Format, OutputFormat, RunPath, print_json
from netdfl.core.errors import InputError


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
    """Name the first event in which two runs part, and what followed; the exit code is 1 where they part.

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
