"""The progress of a study: on a terminal a bar, with runs by state and the time left; elsewhere a line for each run.

Everything in the bar is read from the runs' directories, as `netdfl study` does, so that it works with every runner.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from netdfl.study.cells import CellResult
from netdfl.study.progress import LOOK_S, StudyPlan, StudyState, duration

SHARE = 0.1
"""The largest share of the time that reading the runs' directories may take."""


@contextmanager
def bar_of(plan: StudyPlan, console: Console) -> Iterator[None]:
    """Show the progress bar of a study inside the context; show nothing if the output is no terminal."""
    if not console.is_terminal:
        yield
        return
    columns = (TextColumn(plan.name), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[words]}"))
    over = Event()
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        looking = Thread(target=_look, args=(plan, progress, over), daemon=True)
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join()


def _look(plan: StudyPlan, progress: Progress, over: Event) -> None:
    """Show the states of the study's runs in `progress` repeatedly, for the last time once `over` is set."""
    task = progress.add_task(plan.name, total=len(plan.cells), words="")
    while True:
        last, since = over.is_set(), time.monotonic()
        study = StudyState.of(plan)
        progress.update(task, completed=study.num("finished"), words=words_of(study))
        progress.refresh()
        if last:
            return
        over.wait(max(LOOK_S, (time.monotonic() - since) / SHARE))


def words_of(study: StudyState) -> str:
    """Return the numbers of runs by state, and the time left if it can be estimated, as text."""
    counts = [f"{num} {state}" for state in ("running", "queued", "failed") if (num := study.num(state))]
    left_s = study.left_s if study.num("running") else None
    return ", ".join([*counts, *([f"about {duration(left_s)} left"] if left_s else [])])


def line_of(ran: CellResult, name: str) -> str:
    """Return a line on a finished run: its `name`, the accuracy that it reached or its verdict, and its duration."""
    result = ran.result or {}
    accuracy = (result.get("test_accuracy") or {}).get("average_model", {}).get("last")
    reached = result.get("verdict", "no result") if accuracy is None else f"{100 * accuracy:.1f} %"
    seconds = result.get("duration_s") or 0.0
    return f"{name}: {reached} in {f'{seconds:.1f} s' if seconds < 90 else duration(seconds)}"
