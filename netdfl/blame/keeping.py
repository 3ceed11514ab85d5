"""The results of blame, stored in the run's directory for its page.

For the first rows of the table of possible causes, the page also shows from which moment on the run and the rerun
without that row's cause differ. The search for causes keeps no records of reruns, so these reruns are made once more.
Their records lie in a temporary folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from netdfl.blame.blaming import BlameRow, Show
from netdfl.blame.lanes import lanes_of
from netdfl.blame.run import RunBlame
from netdfl.blame.told import order_of, sentences_of, table_of
from netdfl.core.clock import NS_PER_S
from netdfl.core.errors import InputError
from netdfl.core.fates import Fate
from netdfl.core.outcome import outcome_of
from netdfl.core.types import Message, NodeId, Payload
from netdfl.explore.execute import ExploredRun
from netdfl.explore.rows import MemoryStore
from netdfl.record.directory import RunDirectory
from netdfl.record.kept_blame import (
    FILE,
    MOST_CELL,
    MOST_NODES,
    MOST_ROWS,
    MOST_SHOWN,
    MOST_TEXT,
    SCHEMA,
    BlameForm,
    PartingForm,
)
from netdfl.record.plain_json import dump_json
from netdfl.record.run import Run, open_run
from netdfl.record.store import StoreWriter
from netdfl.replaying.diff import diff
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.loading.resolved import plain_to_yaml, to_plain


def page_runs(asked: RunBlame) -> int:
    """Return how many runs are made for the page at most: the run itself, and one without each of a few causes."""
    few = min(MOST_SHOWN, len(asked.likely))
    return few + bool(few)


def keep_blame(asked: RunBlame, show: Show = lambda what, done, of: None) -> Path:
    """Store the results for the run `asked` as `blame.json` in its directory; return the file's path.

    The reruns without the causes in the first rows of the table are made again for it.

    Raises:
        InputError: a rerun took too long this time, or its record could not be read again.
        RunError: a file can't be written.
    """
    found, lines = asked.blame, table_of(asked.blame)
    rows = [
        {"cells": [cell[:MOST_CELL] for cell in cells], "order": order_of(found, row)}
        for cells, row in zip(lines[1 : MOST_ROWS + 1], found.ordered(), strict=False)
    ]
    cost = found.target.cost(found.base)
    kept: BlameForm = {
        "schema": SCHEMA,
        "event_log_hash": found.base.log_hash,
        "target": found.target.name,
        "took": "not by its end" if cost is None else found.target.told(cost),
        "head": list(lines[0]),
        "rows": rows,  # type: ignore[typeddict-item]
        "left_out": max(0, len(lines) - 1 - MOST_ROWS),
        "sentences": [each[:MOST_TEXT] for each in sentences_of(found)],
        "shown": list(_shown(asked, show)),
    }
    return RunDirectory(asked.path).write(FILE, dump_json(kept) + "\n")


def _shown(asked: RunBlame, show: Show) -> Iterator[PartingForm]:
    """Yield, for the possible causes with the largest gains, where the run and the rerun without the cause diverge.

    `show` is called before each rerun.
    """
    rows = [(place, row) for place, row in enumerate(asked.blame.ordered()) if row.outcome is not None][:MOST_SHOWN]
    if not rows:
        return
    with TemporaryDirectory() as folder:
        show("for the page", 0, len(rows) + 1)
        run = asked.player.record([])
        directory = _written(run, Path(folder) / "run")
        for number, (place, row) in enumerate(rows):
            show("for the page", number + 1, len(rows) + 1)
            with TemporaryDirectory(dir=folder) as other:
                if (found := _parting(asked, row, (run, directory), Path(other) / "run")) is not None:
                    yield {"row": place, **found}  # type: ignore[typeddict-item]


def _parting(asked: RunBlame, row: BlameRow, first: tuple[ExploredRun, Run], where: Path) -> dict[str, object] | None:
    try:
        played = asked.player.record([row.candidate])
    except InputError:  # its computing took too long this time
        return None
    both = (first, (played, _written(played, where)))
    found = diff(*(directory for _, directory in both))
    if found.parting is None:
        return {"words": [found.text], "at_s": None, "nodes": [], "num_nodes": 0, "lanes": []}
    at_s, nodes = found.parting.at_s, [each.node for each in found.follow]
    few = sorted(nodes[:MOST_NODES])
    lanes = [lanes_of(directory, at_s, run.length_ns / NS_PER_S, few, _stuck(run)) for run, directory in both]
    words = [each[:MOST_TEXT] for each in found.parting.words]
    return {"words": words, "at_s": at_s, "nodes": few, "num_nodes": len(nodes), "lanes": lanes}


def _stuck(run: ExploredRun) -> dict[NodeId, float]:
    """Return the nodes in stalls that did not end, with the time in seconds at which their stall began."""
    found: dict[NodeId, float] = {}
    for stall in run.stalls:
        if not stall.over and not stall.suspected:
            for node in (*stall.roots, *stall.behind):
                found.setdefault(node, stall.began_ns / NS_PER_S)
    return found


def _written(run: ExploredRun, where: Path) -> Run:
    """Write the record of a run that is in memory to the new directory `where`, and open it."""
    directory = RunDirectory.create(where.parent, "play", run.scenario.seed, out=where)
    directory.write("scenario.yaml", plain_to_yaml(to_plain(run.scenario)))
    directory.write_events([event.to_json() for event in compile_schedule(run.scenario)])
    with StoreWriter(where, "fleet") as writer:
        _copy(run.rows, writer)
    return open_run(where)


def _copy(rows: MemoryStore, writer: StoreWriter) -> None:
    for sent in rows.messages:
        message = Message(*sent[:7], Payload())
        writer.outcome(outcome_of(message, sent.nbytes, sent.sent_ns, sent.arrived_ns, Fate.read(sent.fate)))
    for at_ns, node, round, name, value in rows.measured:
        writer.metrics(at_ns, node, round, {name: value})
    for event in rows.events:
        writer.event(event.at_ns, event.node, event.round, event.kind, **event.details)
    for waited in rows.waits:
        writer.wait(waited)
