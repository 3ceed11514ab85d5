"""The command `run`: runs a scenario, resumes a run, or runs a scenario twice to compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netdfl.cli import completion
from netdfl.cli.options import SCENARIO_HELP, NewRun, Page, Sets, World, load_scenario, sum_up
from netdfl.cli.results import Web, beside
from netdfl.core.errors import InputError

OptionalScenario = Annotated[
    Path | None, typer.Argument(metavar="SCENARIO", help=SCENARIO_HELP, autocompletion=completion.scenarios)
]
Twice = Annotated[
    bool, typer.Option("--check-determinism", help="Simulate it twice, and name the first event that differs.")
]
Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume", metavar="RUN", help="Go on with a run that was killed; modules that its scenario names run."
    ),
]


def run(
    scenario: OptionalScenario = None,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: World = None,
    out: NewRun = None,
    check_determinism: Twice = False,
    page: Page = True,
    web: Web = False,
    resume: Resume = None,
) -> None:
    """Run a scenario and judge it; the exit code is the verdict.

    Exit codes: 0 pass or done. 1 fail: it did not do what its scenario expects. 2 nothing was run: a mistake in the
    scenario, the arguments or the data. 3 unknown: the emulation missed its own bound. 4 broken: by something outside
    the scenario, or inside netdfl. 130 interrupted.

    Examples:
        netdfl run quickstart
        netdfl run mine/clinics.yaml --set algorithm.lr=0.05 --out runs/ring
        netdfl run faults/crash --on simulated
        netdfl run quickstart --set 'events=[{at_round: 5, crash: 3}]'
        netdfl run --resume runs/clinics/latest
    """
    if resume is not None:
        if web:
            raise InputError("--web is for a new run; for one that is resumed, `netdfl serve RUN` in another terminal")
        raise typer.Exit(_resume(resume, page, scenario is None and not sets and on is None and out is None))
    if scenario is None:
        raise InputError("which scenario? name its file, or a run to --resume")
    if check_determinism and web:
        raise InputError("--check-determinism runs a scenario twice, and has no page; leave --web out")
    if check_determinism:
        raise typer.Exit(_check_determinism(load_scenario(scenario, sets, on), out))
    raise typer.Exit(_run(scenario, sets, on, out=out, page=page, web=web))


def _run(scenario: Path, sets: list[str], on: str | None, *, out: Path | None, page: bool, web: bool) -> int:
    """Run a scenario with a live view; return the exit code."""
    from netdfl.worlds.fork_client import ForkServer

    forkserver = None if _may_be_simulated(scenario, sets, on) else ForkServer.open()
    try:
        loaded = load_scenario(scenario, sets, on)
        from netdfl.report.live import open_view
        from netdfl.running.run import run as run_scenario

        view = open_view()
        with beside(web, view) as server:
            made = server.begin if web else None
            finished = run_scenario(loaded, out=out, page=page, view=view, forkserver=forkserver, made=made)
            code = sum_up(view, finished)
            if web:
                server.stay(view.note)
            return code
    finally:
        if forkserver is not None:
            forkserver.close()


def _may_be_simulated(scenario: Path, sets: list[str], on: str | None) -> bool:
    """Return whether the run may be simulated, by the text of the scenario and the options.

    If it may be, no server that forks node processes is started in advance.
    """
    from netdfl.scenario.loading.shipped import find_scenario

    try:
        text = find_scenario(scenario).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return on == "simulated" or (on is None and any("simulated" in each for each in (text, *sets)))


def _resume(path: Path, page: bool, alone: bool) -> int:
    """Resume the run at `path`; return the exit code.

    `alone` says whether no option was given that would change the run. Raises InputError if it is false.
    """
    if not alone:
        raise InputError(
            "--resume goes on with a run as it was: give no scenario, --set, --on or --out with it; a run "
            "that has ended is trained on by task.model.initial"
        )
    from netdfl.report.live import open_view
    from netdfl.running.run import resume

    view = open_view()
    return sum_up(view, resume(path, page=page, view=view))


def _check_determinism(scenario: Any, out: Path | None) -> int:
    """Print the hashes of two runs and their first difference; return 0 if they are equal, else 1."""
    import shutil
    import tempfile

    from netdfl.running.determinism import check_determinism

    path = out or Path(tempfile.mkdtemp(prefix="netdfl-determinism-"))
    found = check_determinism(scenario, path)
    print(f"first run   {found.hashes[0]}\nsecond run  {found.hashes[1]}")
    for place in found.unseeded:
        print(f"{place} takes chance from the operating system, which no seed reaches: give the generator there a seed")
    if found.goes_by_sets:
        print("your code goes by the order of a set or by hash(), which Python draws anew for each process: sort it")
    if found.difference is not None:
        print(f"they differ at {found.difference}; both logs are in {path}")
        return 1
    print("they are equal")
    if out is None:
        shutil.rmtree(path)
    return 0
