"""The table of commands, in the order in which `netdfl --help` shows them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from netdfl.cli import attended, claims, data, fleets, results, running, runs, scenarios, studies, tuning
from netdfl.cli.output import outliving_its_reader

Commands = Mapping[str, Callable[..., None]]

#: What `netdfl --help` shows under each heading: a command's name and its function.
COMMANDS: Mapping[str, Commands] = {
    "Scenarios": {
        "new": scenarios.new,
        "validate": scenarios.validate,
        "explain": scenarios.explain,
        "list": scenarios.list_parts,
    },
    "Runs": {
        "run": running.run,
        "stop": attended.stop,
        "logs": attended.logs,
        "sweep": studies.sweep,
        "reproduce": studies.reproduce,
        "study": studies.study,
        "explore": studies.explore,
        "prove": studies.prove,
    },
    "Results": {
        "report": results.report,
        "measure": results.measure,
        "serve": results.serve,
        "export": results.export,
        "replay": results.replay,
        "diff": results.diff,
        "blame": results.blame,
        "query": runs.query,
    },
    "Fleets that nobody looks after, and machines": {
        "node": fleets.node,
        "credentials": fleets.credentials,
        "collect": fleets.collect,
        "testbed": fleets.make_testbed,
        "sbatch": fleets.sbatch,
        "doctor": fleets.doctor,
    },
    "Data and calibration": {
        "calibrate": data.calibrate,
        "fit": data.fit,
    },
}
#: Commands whose work counts, whether somebody reads their output to its end or not.
LASTING = ("run", "sweep", "deadline", "quorum", "reproduce", "explore", "prove", "blame", "serve", "node", "collect")
#: Commands of two words: the first, what it is for, the second and its function.
GROUPS: Mapping[str, tuple[str, Commands]] = {
    "claims": (
        "Put the papers' claims to the test.",
        {"run": claims.run, "stop": claims.stop, "table": claims.table},
    ),
    "tune": (
        "Find the smallest deadline, or quorum, that reaches a target.",
        {"deadline": tuning.deadline, "quorum": tuning.quorum},
    ),
    "data": ("Fetch datasets, convert tables.", {"get": data.data_get, "convert": data.data_convert}),
    "runs": (
        "List, label, compare and throw away the runs of a folder.",
        {"list": runs.list_runs, "show": runs.show, "compare": runs.compare, "tag": runs.tag, "rm": runs.rm},
    ),
}

#: The heading under which a command of two words stands.
PANELS: Mapping[str, str] = {"claims": "Runs", "tune": "Runs", "data": "Data and calibration", "runs": "Results"}


class _Command(TyperCommand):
    """A command whose help leaves out the type of a flag, which takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


class _Group(TyperGroup):
    """A group of commands whose help leaves out the types of flags."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_flags(super().get_params(ctx))


def _without_types_of_flags(parameters: list[Any]) -> list[Any]:
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters


@cache
def make_app() -> typer.Typer:
    """Return the command line with all commands, as a Typer application; each call returns the same object."""
    app = typer.Typer(
        cls=_Group,
        help="Run decentralized federated learning on real or simulated networks, described by one scenario file.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(common)
    for panel, commands in COMMANDS.items():
        _add(app, commands, panel)
    for name, (about, commands) in GROUPS.items():
        group = typer.Typer(cls=_Group, help=about, no_args_is_help=True)
        _add(group, commands)
        app.add_typer(group, name=name, rich_help_panel=PANELS[name])
    return app


def _add(app: typer.Typer, commands: Commands, panel: str | None = None) -> None:
    for name, function in commands.items():
        about, examples = _help(function)
        made = outliving_its_reader(function) if name in LASTING else function
        app.command(name, cls=_Command, rich_help_panel=panel, help=about, epilog=examples)(made)


def _help(function: Callable[..., None]) -> tuple[str, str]:
    """Return the help of a command from its docstring: the text, and the examples as separate lines."""
    about, _, examples = inspect.cleandoc(function.__doc__ or "").partition("\n\nExamples:\n")
    lines = [f"$ {line.strip()}" for line in examples.splitlines()]
    paragraphs = [" ".join(each.split()) for each in about.split("\n\n")]
    return "\n\n".join(paragraphs), "\n\n".join(["Examples:", *lines]) if lines else ""


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"netdfl {version('netdfl')}")
        raise typer.Exit


def common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Handle the options before a command, such as `--version`."""
