"""The command `netdfl blame`: runs a scenario without each possible cause of its cost, and says which matter.

It also writes the scenario without the causes that it found.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from netdfl.blame.blaming import Blame, Show
from netdfl.blame.keeping import keep_blame, page_runs
from netdfl.blame.removal import KEYS_OF_WORLD
from netdfl.blame.run import RunBlame
from netdfl.blame.told import sentences_of, table_of
from netdfl.core.errors import NetdflError
from netdfl.core.files import write_whole, writing
from netdfl.explore.shrink import short_plain
from netdfl.report.words import aligned
from netdfl.scenario.loading.resolved import plain_to_yaml

DONE, INTERRUPTED = 0, 130
FILE = "without.yaml"
SLOW_S = 1.0
"""The command prints how long a run takes if that is at least this many seconds."""


def blame(asked: RunBlame, folder: Path, console: Console) -> int:
    """Carry out the command `netdfl blame` for the run `asked`; return the exit code.

    Print the table of possible causes, and the set of causes that explains the cost in time, bytes or accuracy. Write
    the run's scenario without that set of causes into `folder`.
    """

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    for line in beforehand(asked):
        say(line)
    code = DONE
    try:
        with _progress(console) as show:
            asked.play(show)
            page = _kept(asked, show)
    except KeyboardInterrupt:
        code = INTERRUPTED
    for line in aligned(table_of(asked.blame)):
        say(line)
    if code == INTERRUPTED:
        say("interrupted: what was played is kept; repeat the command to go on from there")
        return code
    for line in sentences_of(asked.blame):
        say(line)
    store = asked.player.executor.store
    if store.recalled:
        say(f"{store.recalled:,} of {store.recalled + store.trained:,} local rounds were not trained again")
    say(page)
    if asked.blame.found:
        say(f"netdfl run {_write(asked, asked.blame, folder)}")
    return code


def beforehand(asked: RunBlame) -> Iterator[str]:
    """Yield lines to print before the runs are made: the cost of the run `asked`, and how many runs are to come."""
    found, target = asked.blame, asked.blame.target
    cost = target.cost(found.base)
    took = f"not by the end of the run, {found.base.end_ns / 1e9:g} s" if cost is None else target.told(cost)
    yield f"{target.name}: {took}"
    many = len(found.candidates)
    yield (
        f"{many} candidate{'s' * (many != 1)}: {len(asked.likely) + 1} runs for the table, "
        f"at most {asked.limits.set_runs} for the set, {page_runs(asked)} for the page"
    )
    if asked.play_s >= SLOW_S:
        yield f"a run takes up to {asked.play_s:.0f} s on this machine"
    executor = asked.player.executor
    if executor.trains:
        room = f"up to {executor.store.most_bytes >> 20} MiB of memory"
        yield f"local rounds that don't change are not trained again; they lie in {room}"


def _kept(asked: RunBlame, show: Show) -> str:
    """Store the results in the directory of the run `asked`, for its page; return a sentence about it."""
    try:
        keep_blame(asked, show)
    except NetdflError as error:  # the table is worth more than its page
        return f"the page of the run has no table: {error}"
    return f"the page of the run has this table: netdfl report {asked.path}"


def _write(asked: RunBlame, found: Blame, folder: Path) -> Path:
    """Write a copy of the scenario without the set of causes in `found`; return its path."""
    scenario = asked.player.scenario
    without = asked.player.variants.without(found.found or ())
    plain = short_plain(scenario)
    plain |= {"links": without["links"], "events": without["events"]}
    if without.get("underlay"):
        plain["underlay"] = without["underlay"]
    for key in KEYS_OF_WORLD:
        if value := without["world"][key]:
            plain["world"] = {**plain["world"], key: value}
    path = folder / FILE
    members = "".join(f"# - {each.text}\n" for each in found.found or ())
    text = f"# {scenario.name}, seed {scenario.seed}, under the same luck without:\n{members}{plain_to_yaml(plain)}"
    with writing(path, more="; name another folder with --out DIR"):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    return path


@contextmanager
def _progress(console: Console) -> Iterator[Show]:
    columns = (TextColumn("playing {task.fields[what]}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None, what="")

        def show(what: str, done: int, of: int) -> None:
            progress.update(task, completed=done, total=of, what=what)

        yield show
