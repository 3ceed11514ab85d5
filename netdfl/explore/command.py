"""`netdfl explore`: search, shrink what was found, write it down, and say it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from netdfl.core.errors import InputError
from netdfl.core.files import write_whole
from netdfl.explore.cause import is_raised
from netdfl.explore.explore import Budget, Exploration, Explored, Show, by_rate
from netdfl.explore.findings import Findings

FOUND, INTERRUPTED = 1, 130


def explore(exploration: Exploration, budget: Budget, console: Console, *, shrink: bool = True) -> int:
    """Search, shrink and tell; the exit code: 0 nothing found, 1 something, 130 interrupted."""
    for kind, why in exploration.left_out.items():
        console.print(f"no {kind}: {why}", style="dim", highlight=False)
    with _progress(console, budget) as show:
        explored = exploration.run(budget, show)
    interrupted, files = explored.why_stopped == "interrupted", dict[str, Path]()
    try:
        _write(exploration, explored, console, files, shrink=shrink and not interrupted)
    except KeyboardInterrupt:
        interrupted = True
    tell(explored, files, console)
    if interrupted:
        console.print("interrupted: what was found is kept; repeat the command to go on from there")
        return INTERRUPTED
    return FOUND if explored.findings else 0


def tell(explored: Explored, files: dict[str, Path], console: Console) -> None:
    """Print what was found, most often met first."""
    fresh = f"{explored.num_fresh} of them drawn by themselves"
    more = f"; {explored.refused} could not begin" if explored.refused else ""
    console.print(f"{explored.runs} runs, {fresh}, reached {explored.reached} kinds of moments{more}")
    if explored.why_stopped and explored.why_stopped != "interrupted":
        console.print(f"stopped: {explored.why_stopped}", highlight=False, markup=False)
    if not explored.findings:
        console.print("nothing was found")
        return
    for place, found in enumerate(by_rate(explored), start=1):
        console.print(f"\n{place}. {found.cause.text}", highlight=False, markup=False)
        often = f"{len(found.numbers)} runs; of those that were drawn by themselves {explored.rate(found)}"
        console.print(f"   {often}", style="dim", highlight=False)
        if file := files.get(found.cause.key):
            console.print(f"   netdfl run {file}", highlight=False, markup=False, soft_wrap=True)


def _write(
    exploration: Exploration, explored: Explored, console: Console, files: dict[str, Path], *, shrink: bool
) -> None:
    """A scenario for each finding into `files`, with the traceback where netdfl broke; then as small as it gets."""
    if exploration.folder is None:
        return
    findings = Findings(exploration, explored)
    shown = [each for each in enumerate(by_rate(explored), start=1) if not is_raised(each[1].cause)]
    with console.status("") as status:
        for place, found in shown:
            path = exploration.folder / f"finding-{place:02d}.yaml"
            try:
                write_whole(path, findings.written(found).encode())
            except InputError as error:
                console.print(f"not written: {error}", markup=False)
                continue
            files[found.cause.key] = path
            if found.broke:
                write_whole(path.with_suffix(".traceback.txt"), found.broke.encode())
        for place, found in shown:
            if shrink and found.cause.key in files and not findings.is_shrunk(found):
                status.update(f"shrinking {place} of {len(explored.findings)}: {found.cause.key}")
                write_whole(files[found.cause.key], findings.shrunk(found).encode())


@contextmanager
def _progress(console: Console, budget: Budget) -> Iterator[Show]:
    columns = (TextColumn("exploring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[found]}"), console=console) as progress:
        task = progress.add_task("", total=budget.runs, found="")

        def show(explored: Explored) -> None:
            found = f"{len(explored.findings)} findings, {explored.reached} kinds of moments"
            progress.update(task, completed=explored.runs, found=found)

        yield show
