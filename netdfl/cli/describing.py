"""The commands that look at a scenario and at what it can name: `validate`, `explain`, `list`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from netdfl.cli import completion
from netdfl.cli.options import Format, OutputFormat, ScenarioFile, Sets, World, load_scenario, print_json
from netdfl.core.errors import InputError


def validate(scenario: ScenarioFile, sets: Sets = [], on: World = None) -> None:  # noqa: B006 - typer reads it only
    """Check a scenario and name every mistake in it.

    Parts of your own are imported and tried: this runs modules that lie beside the scenario, if it names them.

    Examples:
        netdfl validate mine/clinics.yaml
        netdfl validate quickstart --set algorithm.lr=0.05 --on simulated
    """
    from netdfl.running.ready import check_ready

    loaded = load_scenario(scenario, sets, on)
    check_ready(loaded)
    print(f"{scenario}: {loaded.name} is valid")


def explain(
    scenario: ScenarioFile,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: World = None,
    format: OutputFormat = Format.TEXT,
) -> None:
    """Show a fleet before it runs: graph, weights, traffic, data, events.

    Parts of your own are imported and tried: this runs modules that lie beside the scenario, if it names them.

    Examples:
        netdfl explain quickstart
        netdfl explain mine/clinics.yaml --set topology.kind=torus --format json
    """
    from netdfl.scenario.explain.explain import explain as find

    try:
        found = find(load_scenario(scenario, sets, on))
    except ValueError as exc:
        raise InputError(f"{scenario}: {exc}") from exc
    if format is Format.JSON:
        print_json(found.to_json())
    else:
        from rich.console import Console

        from netdfl.scenario.explain.terminal_tables import show

        show(found, Console())


What = Annotated[
    str,
    typer.Argument(
        metavar="LIST",
        help="algorithms, scenarios, wait, ...; nothing lists the lists.",
        autocompletion=completion.lists,
    ),
]


def list_parts(what: What = "", format: OutputFormat = Format.TEXT) -> None:
    """List what a scenario can name: parts by kind, keys, and the scenarios that come with netdfl.

    Examples:
        netdfl list
        netdfl list algorithms
        netdfl list wait
        netdfl list scenarios --format json
    """
    from netdfl.scenario.explain.keys import lists, rows

    found: list[Any] = rows(what) if what else lists()
    if format is Format.JSON:
        print_json(found)
    elif not what:
        print("\n".join(found))
    else:
        from rich.console import Console

        from netdfl.scenario.explain.terminal_tables import show_parts

        show_parts(found, Console())
