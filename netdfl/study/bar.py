"""The bar of a study on a terminal: runs that are done, running, queued and failed, and about how long the rest takes.

Everything is read off the runs' directories, as `netdfl study` does, whatever makes them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from netdfl.study.progress import LOOK_S, StudyPlan, StudyState, duration

SHARE = 0.1
"""The most of the time that looking at a study's runs may take."""


@contextmanager
def bar_of(plan: StudyPlan, console: Console) -> Iterator[None]:
    """Show the bar of a study while its runs are made; nothing where the output is no terminal."""
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
    """Show the state of the study's runs in `progress` from time to time, the last time when the study is over."""
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
    """Return the numbers of runs by their states, and the time left as far as anything tells it."""
    counts = [f"{num} {state}" for state in ("running", "queued", "failed") if (num := study.num(state))]
    left_s = study.left_s if study.num("running") else None
    return ", ".join([*counts, *([f"about {duration(left_s)} left"] if left_s else [])])
