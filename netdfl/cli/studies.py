"""The commands that make many runs: `sweep`, `reproduce`, `study`, `explore` and `prove`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netdfl.cli import completion
from netdfl.cli.options import Jobs, ScenarioFile, Sets, World, load_scenario

Where = Annotated[
    str, typer.Option("--runner", metavar="RUNNER", help="What makes the runs: local, slurm, ray, or module:callable.")
]
AtOnce = Annotated[
    int | None,
    typer.Option("--jobs", metavar="N", min=1, help="How many runs at a time; 1 here, elsewhere what has room."),
]
Cpus = Annotated[int | None, typer.Option("--cpus", metavar="N", min=1, help="Cores kept free for each run (1).")]
Gpus = Annotated[float | None, typer.Option("--gpus", metavar="N", min=0, help="GPUs for each run (0).")]
Memory = Annotated[str | None, typer.Option("--memory", metavar="SIZE", help="Memory for each run, like 4GiB.")]
Repeats = Annotated[int | None, typer.Option("--seeds", metavar="N", min=1, help="Runs of each point; 5 by default.")]


def sweep(
    scenario: Annotated[
        Path,
        typer.Argument(metavar="SCENARIO", help="Or a study with its own grids.", autocompletion=completion.scenarios),
    ],
    vary: Annotated[
        list[str], typer.Option("--vary", metavar="PATH=A,B,...", help="Values, like links.default.loss=0,0.1.")
    ] = [],  # noqa: B006 - typer reads it only
    sets: Sets = [],  # noqa: B006 - typer reads it only
    seeds: Repeats = None,
    on: World = None,
    jobs: AtOnce = None,
    runner: Where = "local",
    cpus: Cpus = None,
    gpus: Gpus = None,
    memory: Memory = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="By default sweeps/NAME.")] = None,
) -> None:
    """Run a grid of scenarios, resume it where it was left, and write one table and plots.

    Exit codes: 0 all runs came to an end; 1 some failed; 2 nothing was run; 130 interrupted: call it again to go on.

    Examples:
        netdfl sweep quickstart --on simulated --vary algorithm.name=dfedavg,dpsgd --seeds 3
        netdfl sweep mine/clinics.yaml --vary links.default.loss=0,10%,20% --jobs 2
        netdfl sweep studies/loss --out sweeps/loss --runner ray --cpus 1
    """
    from netdfl.study.cells import ended_by_signals

    shared = [*sets, *([f"world.kind={on}"] if on else [])]
    folder = out or Path("sweeps") / scenario.stem
    with ended_by_signals() as far:
        from rich.console import Console

        from netdfl.study.runners.catalog import choose_runner
        from netdfl.study.sweep import sweep as run_sweep

        make, most, needs = choose_runner(runner, jobs, cpus, gpus, memory)
        failed = run_sweep(
            scenario,
            vary,
            shared,
            out=folder,
            seeds=seeds,
            jobs=most,
            console=Console(),
            far=far,
            make_runner=make,
            needs=needs,
        )
    raise typer.Exit(1 if failed else 0)


def study(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out of a sweep, a reproduction or netdfl tune.")],
    follow: Annotated[bool, typer.Option("--follow", help="Say so again whenever a run begins or ends.")] = False,
) -> None:
    """Say how far a study is and how long it will take, and write its tables and plots from the runs so far.

    It only reads: the study itself goes on elsewhere, or was interrupted.

    Examples:
        netdfl study sweeps/loss
        netdfl study reproductions --follow
    """
    from netdfl.study.progress import show
    from netdfl.study.sweep import write_so_far

    show(folder, lambda line: print(line, flush=True), write_so_far, follow=follow)


Cells = Annotated[
    list[str],
    typer.Option("--cells", metavar="GLOB", help="Only cells with such a name, or a part of it, like 'MNIST/*'."),
]
Seeds = Annotated[str, typer.Option("--seeds", metavar="N|LIST", help="How many, or which: 3, or 4,7.")]
Rounds = Annotated[int | None, typer.Option("--rounds", metavar="N", min=1, help="By default the paper's.")]
Fleet = Annotated[str, typer.Option("--on", metavar="WORLD", help="Where the fleets run.")]
Folder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where runs and tables go.")]
Papers = Annotated[Path | None, typer.Option("--scenarios", metavar="DIR", help="By default scenarios/papers.")]


def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="The paper's number or name: 003, FedSynSAM.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="As printed: TII, T1.")],
    cells: Cells = [],  # noqa: B006 - typer reads it only
    seeds: Seeds = "1",
    rounds: Rounds = None,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: Fleet = "simulated",
    jobs: AtOnce = None,
    runner: Where = "local",
    cpus: Cpus = None,
    gpus: Gpus = None,
    memory: Memory = None,
    out: Folder = Path("reproductions"),
    scenarios: Papers = None,
) -> None:
    """Run a published table's cells, resume where it was left, and set published and measured side by side.

    Examples:
        netdfl reproduce 003 TII --cells 'Fashion*' --seeds 3 --jobs 2
        netdfl reproduce FedSynSAM TII --rounds 20
    """
    from netdfl.study.cells import ended_by_signals

    with ended_by_signals() as far:
        from rich.console import Console

        from netdfl.study.reproduce import SCENARIOS, Reproduction, parse_seeds
        from netdfl.study.reproduce import reproduce as run_table
        from netdfl.study.runners.catalog import choose_runner

        make, most, needs = choose_runner(runner, jobs, cpus, gpus, memory)
        asked = Reproduction(
            paper=paper,
            table=table,
            globs=cells,
            seeds=parse_seeds(seeds),
            rounds=rounds,
            sets=tuple(sets),
            world=on,
            scenarios=scenarios or SCENARIOS,
        )
        code = run_table(asked, out, jobs=most, console=Console(), far=far, make_runner=make, needs=needs)
    raise typer.Exit(code)


Runs = Annotated[
    int | None, typer.Option("--runs", metavar="N", min=1, help="How many runs; 400, unless --for says how long.")
]
For = Annotated[str | None, typer.Option("--for", metavar="TIME", help="How long to search: 90s, 10m.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="What the search is drawn from.")]
Found = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="By default explored/NAME.")]
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
    jobs: AtOnce = None,
    runner: Where = "local",
    cpus: Cpus = None,
    gpus: Gpus = None,
    memory: Memory = None,
    out: Found = None,
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
        netdfl explore mine/clinics.yaml --runs 5000 --runner slurm
    """
    from rich.console import Console

    from netdfl.explore.command import explore as search
    from netdfl.explore.explore import Budget, Exploration
    from netdfl.study.runners.catalog import choose_runner

    loaded, chosen = load_scenario(scenario, sets, on), choose_runner(runner, jobs, cpus, gpus, memory)
    seconds = None if for_ is None else _seconds(for_)
    exploration = Exploration(
        loaded,
        seed=seed,
        jobs=chosen.jobs,
        folder=out or Path("explored") / loaded.name,
        guided=not blind,
        stop_on_error=stop_on_error,
        engine=None if runner == "local" else chosen,
    )
    budget = Budget(400 if runs is None and seconds is None else runs, seconds)
    raise typer.Exit(search(exploration, budget, Console(), shrink=shrink))


Faults = Annotated[
    str, typer.Option("--faults", metavar="BOUND", help='The most faults: "loss: 2, crash: 1, order: all".')
]
Messages = Annotated[str, typer.Option("--messages", metavar="KINDS", help="Which are lost or late: data, ack.")]
Properties = Annotated[
    str, typer.Option("--properties", metavar="NAMES", help="stall, finish, weight, module:callable.")
]
Below = Annotated[float | None, typer.Option("--consensus", metavar="D", help="The consensus distance ends below D.")]
Time = Annotated[str | None, typer.Option("--time", metavar="TIME", help="Stop after that long: 90s, 10m.")]
Most = Annotated[int, typer.Option("--most", metavar="N", min=1, help="The most schedules.")]
Repeated = Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Prove it for so many seeds, one by one.")]
Without = Annotated[
    str, typer.Option("--without", metavar="NAMES", help="Reductions not to use: void, symmetry, commuting.")
]
Proved = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="By default proved/NAME.")]


def prove(
    scenario: ScenarioFile,
    faults: Faults = "loss: 1",
    sets: Sets = [],  # noqa: B006 - typer reads it only
    on: World = None,
    messages: Messages = "",
    properties: Properties = "",
    consensus: Below = None,
    seeds: Repeated = 1,
    time: Time = None,
    most: Most = 1_000_000,
    jobs: Jobs = 1,
    without: Without = "",
    out: Proved = None,
) -> None:
    """Run a small fleet under every schedule of at most so many faults; show the smallest that it does not survive.

    Faults are loss (of one message), crash (of a node, for good or with a return a round later, before each instant at
    which it sends or receives), pause, cut (a link down) and delay. "order: all" adds every order of what is due at one
    instant. The answer holds for this seed, these start values and times. Exit codes: 0 all survived, 1 one did not
    (the smallest is written as a scenario), 2 nothing can be proven, 3 not finished, 130 interrupted.

    Examples:
        netdfl prove faults/lost_message --faults "loss: 1"
        netdfl prove mine/ring.yaml --faults "loss: 2, crash: 1" --time 10m --jobs 2
    """
    from rich.console import Console

    from netdfl.prove.bound import names_in, read_bound
    from netdfl.prove.command import prove as play_all
    from netdfl.prove.proof import ScenarioProof, find_reductions
    from netdfl.prove.properties import choose_properties

    loaded, seconds = load_scenario(scenario, sets, on), None if time is None else _seconds(time, "--time")
    bound, named, unused = read_bound(faults, messages), names_in(properties), find_reductions(names_in(without))
    code = 0
    for seed in range(loaded.seed, loaded.seed + seeds):
        one = loaded if seeds == 1 else load_scenario(scenario, [*sets, f"seed={seed}"], on)
        chosen = choose_properties(one, named, consensus=consensus)
        proof = ScenarioProof(one, bound, chosen, without=unused, most=most, jobs=jobs)
        folder = out or Path("proved") / (one.name if seeds == 1 else f"{one.name}-{seed}")
        code = play_all(proof, folder, Console(), seconds=seconds)
        if code:
            break
    raise typer.Exit(code)


def _seconds(time: str, option: str = "--for") -> float:
    """Return a time such as `10m` in seconds. Raises InputError."""
    from netdfl.core.clock import NS_PER_S
    from netdfl.core.errors import InputError
    from netdfl.core.units import parse_time_ns

    try:
        return parse_time_ns(time) / NS_PER_S
    except ValueError as error:
        raise InputError(f"{option} {time}: {error}") from error
