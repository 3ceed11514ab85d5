"""The command `netdfl prove`: runs a scenario under every schedule of faults within a bound, and prints the answer.

The answer is that every property holds, or a counterexample.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from netdfl.core.files import OTHER_OUT, write_whole, writing
from netdfl.prove.counterexample import write_counterexample
from netdfl.prove.enumeration import ProofProgress, Show
from netdfl.prove.journal import ProofJournal
from netdfl.prove.proof import ProofAnswer, ScenarioProof

SURVIVES, BROKEN, UNKNOWN, INTERRUPTED = 0, 1, 3, 130
FILE = "counterexample.yaml"


def prove(proof: ScenarioProof, folder: Path, console: Console, *, seconds: float | None = None) -> int:
    """Run every schedule of faults, print the answer, write a counterexample if any, and return the exit code.

    Schedules that an earlier call with the same `folder` answered for the same proof are not run again. After `seconds`
    (None: no limit) the proof stops.
    """
    journal = ProofJournal(folder, proof)
    proof.enumeration.answered = journal.answered
    with _progress(console) as show:
        answer = proof.run(seconds, show)
    stopped = answer.progress.stopped
    last = None if proof.bound.orders else answer.progress.last_level(proof.bound.faults)
    journal.keep((last or journal.answered) if stopped else None)
    return tell(answer, folder, console)


def tell(answer: ProofAnswer, folder: Path, console: Console) -> int:
    """Print a proof's answer, write its counterexample, if it has one, into `folder`, and return the exit code."""
    path = folder / FILE
    path.unlink(missing_ok=True)
    if answer.progress.broken is not None:
        text, sentence = write_counterexample(answer)
        with writing(path, more=OTHER_OUT):
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, text.encode())
        console.print(sentence, highlight=False, markup=False)
    console.print(str(answer), highlight=False, markup=False)
    if answer.progress.broken is not None:
        console.print(f"netdfl run {path}", highlight=False, markup=False, soft_wrap=True)
        return BROKEN
    if answer.progress.stopped == "interrupted":
        kept = "what was played is kept; repeat the command to go on from there"
        console.print(f"interrupted: {'with order: all, the next call begins anew' if answer.bound.orders else kept}")
        return INTERRUPTED
    return SURVIVES if answer.survives else UNKNOWN


@contextmanager
def _progress(console: Console) -> Iterator[Show]:
    columns = (TextColumn("proving"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[told]}"), console=console, transient=True) as progress:
        task = progress.add_task("", total=None, told="")

        def show(found: ProofProgress) -> None:
            depth = len(found.levels) - 1
            told = f"with {depth} fault{'s' * (depth != 1)}"
            progress.update(task, completed=found.done[-1], total=found.levels[-1], told=told)

        yield show
