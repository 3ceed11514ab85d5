"""The commands about scenarios: `new`, `validate`, `explain`, `list`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from netdfl.cli import completion
from netdfl.cli.options import Format, OutputFormat, ScenarioFile, Sets, World, load_scenario, print_json, say_notes
from netdfl.core.errors import InputError
from netdfl.core.files import write_given

NewFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, like mine/clinics.yaml.")]
Nodes = Annotated[int | None, typer.Option("--nodes", metavar="N", help="How many clients.")]
Rounds = Annotated[int | None, typer.Option("--rounds", metavar="N", help="Rounds of each.")]
Named = Annotated[str | None, typer.Option("--algorithm", metavar="NAME", help="`netdfl list algorithms`.")]
Graph = Annotated[str | None, typer.Option("--topology", metavar="NAME", help="`netdfl list topologies`.")]
Dataset = Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="`netdfl list datasets`.")]
Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="`netdfl list models`.")]
Loss = Annotated[str | None, typer.Option("--loss", metavar="SHARE", help="Of the messages, like 5%.")]
Latency = Annotated[str | None, typer.Option("--latency", metavar="TIME", help="Of each link, like 20ms.")]
Rate = Annotated[str | None, typer.Option("--rate", metavar="RATE", help="Of each link, like 10Mbit.")]
Where = Annotated[
    str | None, typer.Option("--on", metavar="WORLD", help="Where it runs.", autocompletion=completion.worlds)
]
Ask = Annotated[bool, typer.Option("--ask/--no-ask", help="Ask for what no option says, where there is a terminal.")]
QUESTIONS = {
    "nodes": "How many clients?",
    "algorithm": "Which algorithm (netdfl list algorithms)?",
    "topology": "Who talks to whom (netdfl list topologies)?",
    "dataset": "Which data (netdfl list datasets)?",
    "model": "Which model (netdfl list models)?",
    "loss": "How many messages are lost, like 5% (empty: none)?",
    "latency": "How long is a message under way, like 20ms (empty: no time)?",
}


def new(
    file: NewFile,
    nodes: Nodes = None,
    rounds: Rounds = None,
    algorithm: Named = None,
    topology: Graph = None,
    dataset: Dataset = None,
    model: Model = None,
    loss: Loss = None,
    latency: Latency = None,
    rate: Rate = None,
    on: Where = None,
    ask: Ask = True,
) -> None:
    """Write a commented scenario of your own, by a few questions or by options.

    What neither says has defaults: eight clients in a ring learn digits by dfedavg. The file is checked before it is
    written, and an existing one is left alone.

    Examples:
        netdfl new mine/clinics.yaml
        netdfl new mine/lossy.yaml --nodes 16 --algorithm osgp --topology random_push --loss 5% --no-ask
    """
    from netdfl.scenario.draft import Draft

    if file.exists():
        raise InputError(f"{file} is there already; name another file")
    said: dict[str, Any] = {"nodes": nodes, "rounds": rounds, "algorithm": algorithm, "topology": topology}
    said |= {"dataset": dataset, "model": model, "loss": loss, "latency": latency, "rate": rate, "world": on}
    if ask and sys.stdin.isatty():
        said |= {key: _asked(key, getattr(Draft, key)) for key in QUESTIONS if said[key] is None}
    text = Draft(name=file.stem, **{key: value for key, value in said.items() if value is not None}).text(str(file))
    write_given(file, text)
    print(f"{file}: written and valid; `netdfl explain {file}` shows it, `netdfl run {file}` runs it")


def _asked(key: str, default: Any) -> Any:
    return typer.prompt(QUESTIONS[key], default=default, type=type(default))


def validate(scenario: ScenarioFile, sets: Sets = [], on: World = None) -> None:  # noqa: B006 - typer reads it only
    """Check a scenario, or a study with all its combinations, and name every mistake in it.

    Parts of your own are imported and tried: this runs modules that lie beside the scenario, if it names them.

    Examples:
        netdfl validate mine/clinics.yaml
        netdfl validate quickstart --set algorithm.lr=0.05 --on simulated
        netdfl validate studies/loss
    """
    from netdfl.running.prepare import check_ready
    from netdfl.scenario.loading.shipped import find_scenario
    from netdfl.study.plan import is_study

    if is_study(file := find_scenario(scenario)):
        _validate_study(scenario, file, [*sets, *([f"world.kind={on}"] if on else [])])
        return
    loaded = load_scenario(scenario, sets, on)
    say_notes(check_ready(loaded))
    print(f"{scenario}: {loaded.name} is valid")


def _validate_study(called: Path, file: Path, sets: list[str]) -> None:
    from netdfl.study.checking import check_study

    found = check_study(file, sets)
    for grid in found:
        say_notes(grid.notes)
    for grid in found:
        print(f"{called}: {grid.sentence}")
    print(f"{called}: the study is valid; `netdfl sweep {called}` runs it")


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
        say_notes(found.notes)
    except ValueError as exc:
        raise InputError(f"{scenario}: {exc}") from exc
    if format is Format.JSON:
        print_json(found.to_json())
    else:
        from rich.console import Console

        from netdfl.scenario.explain.terminal_tables import show

        show(found, Console())


ListName = Annotated[
    str,
    typer.Argument(
        metavar="LIST",
        help="algorithms, scenarios, wait, ...; nothing lists the lists.",
        autocompletion=completion.lists,
    ),
]
PartName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="One of the list, in full; or a folder of scenarios.", autocompletion=completion.parts
    ),
]


def list_parts(what: ListName = "", name: PartName = "", format: OutputFormat = Format.TEXT) -> None:
    """List what a scenario can name: parts by kind, keys, and the scenarios that come with netdfl.

    Examples:
        netdfl list
        netdfl list algorithms
        netdfl list algorithms dfedavg
        netdfl list scenarios lecture
        netdfl list scenarios --format json
    """
    from netdfl.scenario.explain import keys

    within = keys.rows_within(name) if what == keys.SCENARIOS and name else []
    if format is Format.JSON:
        print_json(within or (keys.row(what, name) if name else keys.rows(what) if what else keys.lists()))
        return
    from rich.console import Console

    from netdfl.scenario.explain.terminal_lists import show_lists, show_part, show_parts

    if within:
        show_parts(what, within, Console())
    elif name:
        show_part(what, keys.row(what, name), Console())
    elif what:
        show_parts(what, keys.rows(what), Console())
    else:
        show_lists(keys.about_lists(), Console())
