"""The command `new`: a scenario of one's own by a few questions, or by options alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from netdfl.cli import completion
from netdfl.core.errors import InputError

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
World = Annotated[
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
    on: World = None,
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
    said: dict[str, Any] = {
        "nodes": nodes,
        "rounds": rounds,
        "algorithm": algorithm,
        "topology": topology,
        "dataset": dataset,
    }
    said |= {"model": model, "loss": loss, "latency": latency, "rate": rate, "world": on}
    if ask and sys.stdin.isatty():
        said |= {
            key: typer.prompt(text, default=getattr(Draft, key), type=type(getattr(Draft, key)))
            for key, text in QUESTIONS.items()
            if said[key] is None
        }
    text = Draft(name=file.stem, **{key: value for key, value in said.items() if value is not None}).text(str(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    print(f"{file}: written and valid; `netdfl explain {file}` shows it, `netdfl run {file}` runs it")
