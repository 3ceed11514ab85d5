"""The commands that run many scenarios: `sweep`, `reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netdfl.cli import completion
from netdfl.cli.options import Jobs, Sets, World

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
    jobs: Jobs = 1,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="By default sweeps/NAME.")] = None,
) -> None:
    """Run a grid of scenarios, resume it where it was left, and write one table and figures.

    Exit codes: 0 all runs came to an end; 1 some failed; 2 nothing was run; 130 interrupted: call it again to go on.

    Examples:
        netdfl sweep quickstart --on simulated --vary algorithm.name=dfedavg,dpsgd --seeds 3
        netdfl sweep mine/clinics.yaml --vary links.default.loss=0,10%,20% --jobs 2
        netdfl sweep studies/loss --out sweeps/loss
    """
    from netdfl.study.interrupt import ended_by_signals

    shared = [*sets, *([f"world.kind={on}"] if on else [])]
    folder = out or Path("sweeps") / scenario.stem
    with ended_by_signals() as far:
        from rich.console import Console

        from netdfl.study.sweep import sweep as run_sweep

        failed = run_sweep(scenario, vary, shared, out=folder, seeds=seeds, jobs=jobs, console=Console(), far=far)
    raise typer.Exit(1 if failed else 0)


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
    jobs: Jobs = 1,
    out: Folder = Path("reproductions"),
    scenarios: Papers = None,
) -> None:
    """Run a published table's cells, resume where it was left, and set published and measured side by side.

    Examples:
        netdfl reproduce 003 TII --cells 'Fashion*' --seeds 3 --jobs 2
        netdfl reproduce FedSynSAM TII --rounds 20
    """
    from netdfl.study.interrupt import ended_by_signals

    with ended_by_signals() as far:
        from rich.console import Console

        from netdfl.study.reproduce import SCENARIOS, Reproduction, parse_seeds
        from netdfl.study.reproduce import reproduce as run_table

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
        code = run_table(asked, out, jobs=jobs, console=Console(), far=far)
    raise typer.Exit(code)
