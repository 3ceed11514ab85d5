"""The commands that search for the best wait: `tune deadline`, `tune quorum`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from netdfl.cli.options import Jobs, ScenarioFile, Sets
from netdfl.cli.studies import Where

Accuracy = Annotated[
    str | None, typer.Option("--accuracy", metavar="A", help="The test accuracy to reach at the end, like 90%.")
]
Consensus = Annotated[
    float | None, typer.Option("--consensus", metavar="D", help="The consensus distance to come down to, like 1e-3.")
]
Values = Annotated[
    str, typer.Option("--values", metavar="A,B,...", help="Among which values; by default chosen by the scenario.")
]
Confidence = Annotated[str, typer.Option("--confidence", metavar="C", help="Of the intervals of means, like 95%.")]
Repeats = Annotated[int, typer.Option("--seeds", metavar="N", min=2, help="Runs of each value.")]
Scan = Annotated[bool, typer.Option("--scan", help="Run every value, where the curve may go up and down.")]
Found = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="By default tuned/NAME-deadline, or -quorum.")]


def deadline(
    scenario: ScenarioFile,
    accuracy: Accuracy = None,
    consensus: Consensus = None,
    values: Values = "",
    confidence: Confidence = "95%",
    seeds: Repeats = 5,
    scan: Scan = False,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    jobs: Jobs = 1,
    runner: Where = "local",
    out: Found = None,
) -> None:
    """Find the smallest wait.deadline with which simulated runs reach a target, with an interval.

    Few deadlines are run: a larger one is taken to reach no less. The same command goes on where it was left. Exit
    codes: 0 one reaches the target; 1 none does; 2 it can't be searched; 130 interrupted (what ran is kept).

    Examples:
        netdfl tune deadline mine/clinics.yaml --accuracy 90%
        netdfl tune deadline mine/clinics.yaml --consensus 1e-3 --values 10ms,30ms,100ms,300ms --jobs 2
    """
    _tune("deadline", scenario, accuracy, consensus, values, confidence, seeds, scan, sets, jobs, runner, out)


def quorum(
    scenario: ScenarioFile,
    accuracy: Accuracy = None,
    consensus: Consensus = None,
    values: Values = "",
    confidence: Confidence = "95%",
    seeds: Repeats = 5,
    scan: Scan = False,
    sets: Sets = [],  # noqa: B006 - typer reads it only
    jobs: Jobs = 1,
    runner: Where = "local",
    out: Found = None,
) -> None:
    """Find the smallest k of `wait: {for: {quorum: k}}` with which simulated runs reach a target, with an interval.

    Few quorums are run: a larger one is taken to reach no less. The same command goes on where it was left. Exit codes:
    0 one reaches the target; 1 none does; 2 it can't be searched; 130 interrupted (what ran is kept).

    Examples:
        netdfl tune quorum mine/clinics.yaml --accuracy 90% --seeds 3
    """
    _tune("quorum", scenario, accuracy, consensus, values, confidence, seeds, scan, sets, jobs, runner, out)


def _tune(
    knob: Literal["deadline", "quorum"],
    scenario: Path,
    accuracy: str | None,
    consensus: float | None,
    values: str,
    confidence: str,
    seeds: int,
    scan: bool,
    sets: list[str],
    jobs: int,
    runner: str,
    out: Path | None,
) -> None:
    from netdfl.study.cells import ended_by_signals

    with ended_by_signals() as far:
        from rich.console import Console

        from netdfl.study.runners.catalog import find_runner
        from netdfl.study.tuning.tune import TuneOrder, tune
        from netdfl.study.tuning.values import read_confidence, read_target

        order = TuneOrder(
            knob=knob,
            target=read_target(accuracy, consensus),
            confidence=read_confidence(confidence),
            values=values,
            seeds=seeds,
            scan=scan,
        )
        folder = out or Path("tuned") / f"{scenario.stem}-{knob}"
        code = tune(
            scenario,
            order,
            sets,
            out=folder,
            jobs=jobs,
            console=Console(),
            far=far,
            make_runner=find_runner(runner),
        )
    raise typer.Exit(code)
