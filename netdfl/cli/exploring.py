"""The command that looks for failures: `explore`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from netdfl.cli.options import Jobs, ScenarioFile, Sets, World, load_scenario

Runs = Annotated[
    int | None, typer.Option("--runs", metavar="N", min=1, help="How many runs; 400, unless --for says how long.")
]
For = Annotated[str | None, typer.Option("--for", metavar="TIME", help="How long to search: 90s, 10m.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="What the search is drawn from.")]
Folder = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="By default explored/NAME.")]
Shrink = Annotated[bool, typer.Option("--shrink/--no-shrink", help="Reduce each finding to what matters.")]
Blind = Annotated[bool, typer.Option("--blind", help="Draw each run by itself, whatever the others reached.")]
Stop = Annotated[bool, typer.Option("--stop-on-error", help="Stop where a predicate raises, rather than go on.")]


def explore(
    scenario: ScenarioFile,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: World = None,
    runs: Runs = None,
    for_: For = None,
    seed: Seed = 0,
    jobs: Jobs = 1,
    out: Folder = None,
    shrink: Shrink = True,
    blind: Blind = False,
    stop_on_error: Stop = False,
) -> None:
    """Search a simulated scenario for runs that fail: draw faults and orders, group what fails, shrink it.

    What varies, and what counts as found, is said under `explore` of the scenario. Each finding becomes a scenario file
    that `netdfl run` shows. The same command goes on where it was left. Exit codes: 0 nothing was found, 1 something
    was, 2 it can't be explored, 130 interrupted (what was found is kept).

    Examples:
        netdfl explore faults/lost_message --runs 100
        netdfl explore mine/clinics.yaml --for 10m --jobs 2
    """
    from rich.console import Console

    from netdfl.core.clock import NS_PER_S
    from netdfl.core.errors import InputError
    from netdfl.core.units import parse_time_ns
    from netdfl.explore.command import explore as search
    from netdfl.explore.explore import Budget, Exploration

    loaded = load_scenario(scenario, sets, on)
    try:
        seconds = None if for_ is None else parse_time_ns(re.sub(r"m$", "min", for_)) / NS_PER_S
    except ValueError as error:
        raise InputError(f"--for {for_}: {error}") from error
    exploration = Exploration(
        loaded,
        seed=seed,
        jobs=jobs,
        folder=out or Path("explored") / loaded.name,
        guided=not blind,
        stop_on_error=stop_on_error,
    )
    budget = Budget(400 if runs is None and seconds is None else runs, seconds)
    raise typer.Exit(search(exploration, budget, Console(), shrink=shrink))
