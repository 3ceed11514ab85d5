"""Arguments and options that several commands share, and the output about a finished run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from netdfl.cli import completion


class Format(StrEnum):
    """The output format of a command."""

    TEXT = "text"
    JSON = "json"


SCENARIO_HELP = "A scenario's file, or the name of one that `netdfl list scenarios` has."
ScenarioFile = Annotated[
    Path, typer.Argument(metavar="SCENARIO", help=SCENARIO_HELP, autocompletion=completion.scenarios)
]
Sets = Annotated[
    list[str], typer.Option("--set", metavar="PATH=VALUE", help="Override a key, like --set algorithm.lr=0.05.")
]
World = Annotated[
    str | None,
    typer.Option("--on", metavar="WORLD", help="Short for --set world.kind=WORLD.", autocompletion=completion.worlds),
]
RunPath = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="A run directory, like runs/quickstart/latest.", autocompletion=completion.runs),
]
OutputFormat = Annotated[Format, typer.Option("--format", metavar="FORMAT", help="text or json.")]
NewRun = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The run directory to make.")]
Page = Annotated[bool, typer.Option("--page/--no-page", help="Write report.html at the end.")]
Jobs = Annotated[int, typer.Option("--jobs", metavar="N", min=1, help="How many runs at a time.")]


def load_scenario(file: Path | Mapping[str, object], sets: list[str], on: str | None) -> Any:
    """Load a scenario for a command, and print which keys its overrides dropped. Raises ScenarioError."""
    from netdfl.scenario.load import load

    scenario = load(file, sets, on=on)
    say_notes(scenario.notices)
    return scenario


def say_notes(notes: Sequence[str]) -> None:
    """Print remarks to stderr, apart from a command's output."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def print_json(value: object) -> None:
    """Print `value` as JSON."""
    import json

    print(json.dumps(value, indent=1, default=str))


def sum_up(view: Any, finished: Any) -> int:
    """Print the summary of a run; return its exit code."""
    view.summary(finished.result, finished.path)
    return int(finished.exit_code)
