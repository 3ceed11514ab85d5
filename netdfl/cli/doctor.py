"""The command that looks at machines before a fleet runs on them: `doctor`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from netdfl.cli.options import Format, OutputFormat, Sets, World, load_scenario, print_json


def doctor(
    scenario: Annotated[Path | None, typer.Argument(metavar="[SCENARIO]", help="Look for what it needs, too.")] = None,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: World = None,
    peers: Annotated[
        Path | None, typer.Option("--peers", metavar="FILE", help="Look up the names of nodes by hand, too.")
    ] = None,
    format: OutputFormat = Format.TEXT,
) -> None:
    """Check this machine, or with --on all machines of an engine, and say what to do; exit code 1 where it must be.

    Examples:
        netdfl doctor
        netdfl doctor quickstart --on namespaces
    """
    from netdfl.doctor.checks import State, judge
    from netdfl.doctor.gather import DOCUMENT, gather
    from netdfl.doctor.words import lines
    from netdfl.scenario.load import loads
    from netdfl.standalone.request import read_peers

    if scenario is None:
        import json

        wanted = loads(json.dumps(DOCUMENT), sets, on=on)
    else:
        wanted = load_scenario(scenario, sets, on)
    names = [] if peers is None else sorted({where.rpartition(":")[0] for where in read_peers(peers).values()})
    known = gather(wanted, names)
    found = judge(known, device=wanted.device, wanted=on)
    if format is Format.JSON:
        print_json({"findings": [asdict(each) for each in found], **asdict(known)})
    else:
        print("\n".join(lines(found)))
    raise typer.Exit(1 if any(each.state is State.FAIL for each in found) else 0)
