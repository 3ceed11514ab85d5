"""The command `netdfl explore`: searches for failing runs, shrinks their scenarios, writes and prints them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from netdfl.core.errors import InputError
from netdfl.core.files import write_whole
from netdfl.explore.cause import is_raised
from netdfl.explore.explore import Budget, Discovery, Exploration, ExplorationResult, Show, by_rate
from netdfl.explore.findings import FindingScenarios, FindingText, tell_of

FOUND, INTERRUPTED = 1, 130


def explore(exploration: Exploration, budget: Budget, console: Console, *, shrink: bool = True) -> int:
    """Search for failing runs, shrink and print them; return the exit code: 0: none, 1: some, 130: interrupted."""
    for kind, why in exploration.left_out.items():
        console.print(f"no {kind}: {why}", style="dim", highlight=False)
    with _progress(console, budget) as show:
        explored = exploration.run(budget, show)
    interrupted, shown = explored.why_stopped == "interrupted", dict[str, ShownFinding]()
    try:
        _write(exploration, explored, console, shown, shrink=shrink, interrupted=interrupted)
    except KeyboardInterrupt:
        interrupted = True
    tell(explored, shown, console)
    if interrupted:
        console.print("interrupted: what was found is kept; repeat the command to go on from there")
        return INTERRUPTED
    return FOUND if explored.findings else 0


class ShownFinding(NamedTuple):
    """A finding (failing runs with one cause) as it is printed.

    Attributes:
        path: the scenario file that reproduces it.
        sentence: a sentence about the run of that file.
        told: sentences on how often the failure occurs, in which variants, and which settings prevent it.
    """

    path: Path
    sentence: str
    told: Sequence[str]


def tell(explored: ExplorationResult, shown: Mapping[str, ShownFinding], console: Console) -> None:
    """Print an exploration's findings (failures with one cause each), the most frequent first."""
    fresh = f"{explored.num_fresh} of them drawn by themselves"
    more = f"; {explored.refused} could not begin" if explored.refused else ""
    console.print(f"{explored.runs} runs, {fresh}, reached {explored.reached} kinds of moments{more}")
    if explored.why_stopped and explored.why_stopped != "interrupted":
        console.print(f"stopped: {explored.why_stopped}", highlight=False, markup=False)
    if explored.acted:
        console.print(_acted(explored), style="dim", highlight=False)
    if not explored.findings:
        console.print("nothing was found")
        return
    for place, found in enumerate(by_rate(explored), start=1):
        of = shown.get(found.cause.key)
        console.print(f"\n{place}. {found.cause.text if of is None else of.sentence}", highlight=False, markup=False)
        for line in tell_of(found, explored, None) if of is None else of.told:
            console.print(f"   {line}", style="dim", highlight=False, markup=False)
        if of is not None:
            console.print(f"   netdfl run {of.path}", highlight=False, markup=False, soft_wrap=True)


def _acted(explored: ExplorationResult) -> str:
    """Return a text on how many of the drawn faults of each kind had an effect."""
    often = sorted(explored.acted.items(), key=lambda item: (-item[1][0], item[0]))
    each = ", ".join(f"{kind} {acted} of {drawn}" for kind, (drawn, acted) in often)
    return f"faults that acted, of those that were drawn: {each}"


def _write(
    exploration: Exploration,
    explored: ExplorationResult,
    console: Console,
    shown: dict[str, ShownFinding],
    *,
    shrink: bool,
    interrupted: bool,
) -> None:
    """Write a scenario file for each finding (failing runs with one cause), then try remedies and shrink the scenario.

    Written findings go into `shown`. Files of earlier findings that no longer exist are removed.
    """
    folder = exploration.folder
    if folder is None:
        return
    findings = FindingScenarios(exploration, explored)
    all_of = [each for each in enumerate(by_rate(explored), start=1) if not is_raised(each[1].cause)]

    def show(place: int, found: Discovery, write: Callable[[Discovery], FindingText]) -> None:
        path, (text, cause) = _path(folder, place), write(found)
        write_whole(path, text.encode())
        shown[found.cause.key] = ShownFinding(path, cause.text, findings.tell(found))

    with console.status("") as status:
        for place, found in all_of:
            try:
                show(place, found, findings.written)
            except InputError as error:
                console.print(f"not written: {error}", markup=False)
                continue
            if found.broke:
                write_whole(_path(folder, place, ".traceback.txt"), found.broke.encode())
        _remove_others(folder, [each.path for each in shown.values()])
        for place, found in all_of:
            if interrupted or found.cause.key not in shown:
                continue
            of = f"{place} of {len(explored.findings)}: {found.cause.key}"
            status.update(f"trying what ends {of}")
            findings.ends(found)
            status.update(f"shrinking {of}")
            show(place, found, findings.shrunk if shrink and not findings.is_shrunk(found) else findings.written)


def _path(folder: Path, place: int, suffix: str = ".yaml") -> Path:
    return folder / f"finding-{place:02d}{suffix}"


def _remove_others(folder: Path, paths: Sequence[Path]) -> None:
    """Remove the files `finding-NN` in `folder` that are not in `paths`, such as an earlier search's."""
    for path in folder.glob("finding-*.yaml"):
        if path not in paths and re.fullmatch(r"finding-\d+", path.stem):
            path.unlink()
            path.with_suffix(".traceback.txt").unlink(missing_ok=True)


@contextmanager
def _progress(console: Console, budget: Budget) -> Iterator[Show]:
    columns = (TextColumn("exploring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[found]}"), console=console) as progress:
        task = progress.add_task("", total=budget.runs, found="")

        def show(explored: ExplorationResult) -> None:
            findings = f"{len(explored.findings)} finding{'s' * (len(explored.findings) != 1)}"
            found = f"{findings}, {explored.reached} kinds of moments"
            progress.update(task, completed=explored.runs, found=found)

        yield show
