"""The commands for fleets without a supervisor, and for machines: `node`, `credentials`, `collect`, and others."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from netdfl.cli.options import (
    Format,
    NewRun,
    OutputFormat,
    Page,
    ScenarioFile,
    Sets,
    World,
    load_scenario,
    print_json,
    sum_up,
)
from netdfl.core.errors import InputError
from netdfl.core.files import OTHER_OUT, writing

Tls = Annotated[
    bool, typer.Option("--tls/--no-tls", help="Plain text only where nobody but the fleet reaches the ports.")
]


def node(
    scenario: Annotated[Path, typer.Option("--scenario", metavar="FILE", help="The scenario, the same on each node.")],
    id: Annotated[int, typer.Option("--id", metavar="N", help="Which node this is; a server is the last.")],
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen, like 0.0.0.0:5000.")],
    peers: Annotated[Path, typer.Option("--peers", metavar="FILE", help="YAML or JSON: each node's id, host:port.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="By default fleet/NAME/ID.")] = None,
    start_timeout: Annotated[
        str | None,
        typer.Option(
            "--start-timeout", metavar="TIME", help="How long the others may take; by default the scenario's."
        ),
    ] = None,
    credentials: Annotated[
        Path | None, typer.Option("--credentials", metavar="FILE", help="By which the others know this node.")
    ] = None,
    tls: Tls = True,
    secret: Annotated[
        Path | None, typer.Option("--secret", metavar="FILE", help="The fleet's, in plain text; the same on each node.")
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--open", help="No secret: whoever reaches the ports may take part.")
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="[HOST:]PORT", help="Where Prometheus may scrape it; the loopback by default."
        ),
    ] = None,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: World = None,
) -> None:
    """Run one node of a fleet that has no supervisor; `netdfl collect` gathers what the nodes wrote.

    Examples:
        netdfl node --scenario clinics.yaml --id 3 --listen 0.0.0.0:5000 --peers peers.yaml --credentials secrets/3.pem
    """
    from netdfl.standalone.request import make_request

    loaded = load_scenario(scenario, sets, on)
    request = make_request(
        loaded, id, listen, peers, out, start_timeout, credentials, tls, secret, open_to_all, metrics
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # process 1 of a container has no default of its own
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from netdfl.standalone.node import live  # it loads torch and grpc

    code = live(request)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a local round that still computes in its thread is not waited for


def credentials(
    scenario: ScenarioFile,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to make, for its owner alone.")],
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: World = None,
) -> None:
    """Write a secret file for each node, to be carried to where `netdfl node` runs it, and one for use without TLS.

    Examples:
        netdfl credentials clinics.yaml --out secrets
    """
    from netdfl.standalone.credentials import write_credentials

    for file in write_credentials(load_scenario(scenario, sets, on), out):
        print(file)


def collect(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Holds a folder of each node.")],
    out: NewRun = None,
    page: Page = True,
) -> None:
    """Gather what nodes without a supervisor wrote into one run, and judge it; the exit code is the verdict.

    Examples:
        netdfl collect fleet/clinics --out runs/by_hand
    """
    from netdfl.report.live import open_view
    from netdfl.standalone.collect import collect as collect_run
    from netdfl.standalone.testbed import known_of

    view = open_view()
    raise typer.Exit(sum_up(view, collect_run(folder, out=out, page=page, note=view.note, **known_of(folder))))


def make_testbed(
    scenario: ScenarioFile,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to make.")],
    engine: Annotated[str, typer.Option("--for", metavar="ENGINE", help="docker or kubernetes.")] = "docker",
    tls: Tls = True,
    sets: Sets = [],  # noqa: B006 - typer reads it only
) -> None:
    """Write a folder that runs the scenario without a supervisor: on any Docker host, or on a Kubernetes cluster.

    Examples:
        netdfl testbed clinics.yaml --out testbed
    """
    from netdfl.standalone.kubernetes import write_manifests
    from netdfl.standalone.testbed import write_testbed

    writers = {"docker": write_testbed, "kubernetes": write_manifests}
    if engine not in writers:
        raise InputError(f"--for {engine} is no engine of containers; use docker or kubernetes")
    loaded = load_scenario(scenario, sets, "containers")
    with writing(out, more=OTHER_OUT):
        print(writers[engine](loaded, out, tls=tls) / "README.md")


def sbatch(
    scenario: ScenarioFile,
    machines: Annotated[int, typer.Option("--machines", metavar="N", min=1, help="How many machines.")],
    options: Annotated[
        list[str], typer.Option("--option", metavar="OPTION", help="One more of sbatch's, like --time=2:00:00.")
    ] = [],  # noqa: B006
    sets: Sets = [],  # noqa: B006 - typer reads it only
) -> None:
    """Print a script that runs a scenario on machines of Slurm: `netdfl sbatch SCENARIO --machines 4 | sbatch`.

    Examples:
        netdfl sbatch clinics.yaml --machines 4 --option=--time=2:00:00 | sbatch
    """
    from netdfl.scenario.model.world import SlurmOptions
    from netdfl.worlds.machines.slurm import script

    loaded = load_scenario(scenario, sets, "slurm")
    saves = loaded.checkpoint.every is not None
    assert isinstance(loaded.world, SlurmOptions)
    rejoins = loaded.world.rejoin
    print(script(scenario, loaded.name, machines, resumable=saves, rejoins=rejoins, sets=sets, options=options), end="")


def doctor(
    scenario: Annotated[Path | None, typer.Argument(metavar="[SCENARIO]", help="Look for what it needs, too.")] = None,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: World = None,
    peers: Annotated[
        Path | None,
        typer.Option("--peers", metavar="FILE", help="Look up the names of nodes by hand, and try their ports here."),
    ] = None,
    format: OutputFormat = Format.TEXT,
) -> None:
    """Check this machine, or with --on all machines of an engine, and say what to do; exit code 1 where it must be.

    Examples:
        netdfl doctor
        netdfl doctor quickstart --on namespaces
    """
    from netdfl.doctor.checks import Severity, judge, lines
    from netdfl.doctor.gather import DOCUMENT, gather
    from netdfl.host.blueprint import needs_torch
    from netdfl.standalone.request import read_peers

    wanted = load_scenario(DOCUMENT if scenario is None else scenario, sets, on)
    known = gather(wanted, [] if peers is None else sorted(read_peers(peers).values()))
    found = judge(known, device=wanted.device, wanted=on, trains=scenario is None or needs_torch(wanted))
    if format is Format.JSON:
        print_json({"findings": [asdict(each) for each in found], **asdict(known)})
    else:
        print("\n".join(lines(found)))
    raise typer.Exit(1 if any(each.state is Severity.FAIL for each in found) else 0)
