"""The running of a scenario, for the command line, Python, and studies alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netdfl.core.errors import InputError, NetdflError, expect
from netdfl.core.files import empty_folder
from netdfl.core.interrupts import WRITING
from netdfl.core.no_memory import is_of_memory
from netdfl.core.process import few_collections
from netdfl.diagnosis.fidelity import NetworkDelays, judge_fidelity
from netdfl.record.directory import CHECKPOINTS, LOCK, RunDirectory, hold, place_of
from netdfl.record.forms import damaged
from netdfl.record.run import Run, open_run
from netdfl.record.status import Display
from netdfl.record.verdict import MASS_ERROR
from netdfl.running.display import SilentDisplay, announcing, say_layer
from netdfl.running.judged import NO_MEMORY, FinishedRun, facts_of, finish
from netdfl.running.objects import load
from netdfl.running.prepare import prepare
from netdfl.running.provenance import refuse_changed
from netdfl.scenario.loading.document import parse
from netdfl.scenario.model.plugins import ORIGIN
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import RealOptions
from netdfl.supervisor.resumption import Resumption, find_resumption, note, resumptions
from netdfl.worlds.catalog import WORLDS, entry_of
from netdfl.worlds.fork_client import ForkServer
from netdfl.worlds.simulated.compute import COMPUTE_FILE

if TYPE_CHECKING:
    from torch import nn

    from netdfl.supervisor.supervisor import FleetOutcome
    from netdfl.training.tasks.given import Factory

KEPT = ("scenario.yaml", ORIGIN, CHECKPOINTS, COMPUTE_FILE, LOCK)
"""Files of a killed run that stay when it is resumed."""


def run(
    scenario: Scenario | str | Path | Mapping[str, object],
    *,
    model: nn.Module | type[nn.Module] | Factory | None = None,
    data: object = None,
    on: str | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    root: str | Path = "runs",
    page: bool = True,
    view: AbstractContextManager[Display] | None = None,
    forkserver: ForkServer | None = None,
    made: Callable[[Path], None] | None = None,
) -> FinishedRun:
    """Run `scenario` in its world, and judge the run.

    The first Ctrl-C, or SIGTERM, ends the run early, with its result and report: `exit_code` is 130, which a program of
    several runs should look at before it begins the next. The second one raises KeyboardInterrupt.

    Args:
        scenario: As loaded by `netdfl.load`, or its argument: a file's path, or a mapping.
        model: A model of the program, as for `netdfl.load`.
        data: Data of the program, as for `netdfl.load`.
        on: The world to run on.
        out: The run directory; by default a new one below `root`.
        overwrite: Whether to replace an ended run that lies in `out`, so that a notebook's cell can be run again.
        root: The folder of runs.
        page: Whether to write `report.html`.
        view: A view of the fleet while it runs; by default the cell's output in a notebook, and nothing elsewhere.
        forkserver: A fork server opened earlier, so that torch is already imported; it is closed here.
        made: Called with the run directory as soon as it exists.

    Raises:
        InputError: nothing could be run, for a reason in the scenario, the data or the machine.
    """
    known = forkserver is None or isinstance(forkserver, ForkServer)
    expect(known, "forkserver", forkserver, "an open ForkServer, or nothing")
    with few_collections(), nullcontext() if forkserver is None else closing(forkserver):
        expect(out is None or isinstance(out, str | Path), "out", out, "a path")
        expect(isinstance(overwrite, bool), "overwrite", overwrite, "True or False")
        expect(isinstance(root, str | Path), "root", root, "a path")
        expect(made is None or callable(made), "made", made, "a function of the run directory")
        _expect_shown(page, view)
        scenario = load(scenario, on=on, model=model, data=data)
        entry_of(scenario)
        directory = RunDirectory.create(root, scenario.name, scenario.seed, out, overwrite=overwrite)
        with _held(directory):
            if made is not None:
                made(directory.path)
            return _run_in(scenario, replace(directory, page=page), view, forkserver)


def _expect_shown(page: object, view: object) -> None:
    expect(isinstance(page, bool), "page", page, "True or False")
    expect(view is None or hasattr(view, "__enter__"), "view", view, "a context manager that gives a display")


@contextmanager
def _held(directory: RunDirectory) -> Iterator[None]:
    """Hold the lock of the run directory; remove the directory if the run is refused before any row was recorded."""
    try:
        with hold(directory.path):
            yield
    except InputError:
        if not directory.recorded:
            directory.abandon()
        raise


def _run_in(
    scenario: Scenario,
    directory: RunDirectory,
    view: AbstractContextManager[Display] | None,
    forkserver: ForkServer | None = None,
) -> FinishedRun:
    prepare(scenario, directory)
    with view or _view_here() as display:
        say_layer(scenario, display)
        return _supervised(scenario, directory, display, forkserver)


def _view_here() -> AbstractContextManager[Display]:
    """Return the default view: the output of the cell in a notebook, none elsewhere."""
    if "IPython" in sys.modules:
        from netdfl.report.notebook import NotebookView, in_notebook

        if in_notebook():
            return NotebookView()
    return nullcontext(SilentDisplay())


def _supervised(
    scenario: Scenario,
    directory: RunDirectory,
    display: Display,
    forkserver: ForkServer | None = None,
    resumption: Resumption | None = None,
) -> FinishedRun:
    from netdfl.running.supervise import supervise  # it loads torch, and the input is known to be sound by now

    with ExitStack() as stack:
        if scenario.report.tensorboard:
            from netdfl.exports.trackers import FOLDER, TensorBoardDisplay

            display = stack.enter_context(
                TensorBoardDisplay(open_run(directory.path), directory.path / FOLDER, display)
            )
        shown = announcing(display, scenario)
        outcome = supervise(scenario, directory, shown, forkserver=forkserver, resumption=resumption)
    if outcome.interrupted:
        shown.note(WRITING)
    return judge(scenario, directory, outcome, resumption)


def resume(path: str | Path, *, page: bool = True, view: AbstractContextManager[Display] | None = None) -> FinishedRun:
    """Continue the killed or interrupted run in the directory `path`, and judge it; `page` as in `run`.

    A simulated run is repeated from its start, with the local rounds from its checkpoints
    (`netdfl.worlds.simulated.replay`). Real nodes continue from their checkpoints (`netdfl.supervisor.resumption`).

    Raises:
        InputError: there is no such run, it is still running or has ended, or it can't be resumed.
    """
    _expect_shown(page, view)
    found = open_run(path)
    with few_collections(), hold(found.path):
        return _resume(found, RunDirectory(found.path, page=page), view)


def _resume(found: Run, directory: RunDirectory, view: AbstractContextManager[Display] | None) -> FinishedRun:
    verdict = found.result.get("verdict") if found.finished else "unknown"
    if verdict != "unknown":
        raise InputError(f"{found.path} has ended with verdict {verdict}; {_for_more_rounds(found)}")
    scenario = load(found.path / "scenario.yaml")
    if not entry_of(scenario).resumable:
        can = ", ".join(kind for kind, entry in WORLDS.items() if entry.resumable)
        raise InputError(f"{found.path} is a run of world {scenario.world.kind}; only runs of {can} can be resumed")
    refuse_changed(found.path, "resumed")
    if not entry_of(scenario).repeatable:
        return _resume_nodes(found, scenario, directory, view)
    empty_folder(found.path, KEPT)
    return _run_in(scenario, directory, view)


def _for_more_rounds(found: Run) -> str:
    """Return a text that says what a user can do instead of resuming the ended run `found`.

    To train on from its average model is proposed only if its task has such a model.
    """
    document: Any = parse(found.scenario_text, str(found.path / "scenario.yaml")).data
    task = document["task"]
    key = "task.model.initial" if task["kind"] == "train" else "task.initial" if "initial" in task else ""
    more = "to have more rounds from the start, run its scenario.yaml with --set rounds=N"
    if not key:
        return more
    return (
        f"to train on from its average model, `netdfl export {found.path} model --out DIR` and run its scenario.yaml "
        f"with --set {key}=DIR/model.safetensors; {more}"
    )


def _refuse_over(found: Run, scenario: Scenario, resumption: Resumption) -> None:
    """Raise InputError if all nodes have ended their last round, and the verdict is unknown because of a mass error.

    A mass error means that after an earlier resumption the sum of the push-sum weights may be wrong; to resume the run
    once more could not change that. A run that was interrupted, or broke, after its last round can be resumed.
    """
    if not found.finished or not any(each.startswith(MASS_ERROR) for each in found.result["reasons"]):
        return
    last = dict(found.rows("SELECT node, max(round) FROM metrics WHERE name = 'round_s' GROUP BY node"))
    alive = set(range(scenario.nodes)) - resumption.down - resumption.absent
    if all(last.get(node, -1) >= scenario.rounds - 1 for node in alive):
        why = "; ".join(found.result["reasons"])
        raise InputError(
            f"{found.path} has ended with verdict {found.result['verdict']} ({why}): every node has ended its last "
            "round, so that nothing is left to go on with; run its scenario.yaml anew for another verdict"
        )


def _resume_nodes(
    found: Run, scenario: Scenario, directory: RunDirectory, view: AbstractContextManager[Display] | None
) -> FinishedRun:
    """Restart the nodes of a run in a world on the real clock, from their checkpoints; return the finished run."""
    with damaged(found.path, "resumed"):
        resumption = find_resumption(found, scenario)
        _refuse_over(found, scenario, resumption)
        note(found.path, resumption)
    with view or nullcontext(SilentDisplay()) as display:
        return _supervised(scenario, directory, display, resumption=resumption)


def judge(
    scenario: Scenario, directory: RunDirectory, outcome: FleetOutcome, resumption: Resumption | None = None
) -> FinishedRun:
    """Judge a run: decide on its verdict, and write its result and its page.

    `outcome` says how the fleet ended, and the run's record what happened before. `resumption` is not None if the run
    was resumed.
    """
    if outcome.error is not None and not isinstance(outcome.error, NetdflError):
        raise outcome.error
    directory = replace(directory, path=place_of(directory.path))
    figures, missed, fidelity = outcome.figures, outcome.figures.missed, None
    if isinstance(scenario.world, RealOptions):
        bound = scenario.world.fidelity
        try:
            found = judge_fidelity(
                open_run(directory.path),
                relative=bound.relative,
                slack_ns=bound.slack,
                ways=NetworkDelays(figures.links),
            )
            fidelity, missed = found.summary, missed or found.missed
        except Exception as error:
            if not is_of_memory(error):
                raise
            missed = missed or f"{NO_MEMORY} to judge how true the links were"
    facts = facts_of(
        scenario,
        outcome.duration_s,
        virtual_duration_s=figures.virtual_duration_s,
        event_log_hash=figures.event_log_hash,
        fidelity=fidelity,
        fidelity_missed=missed,
        links=figures.links or {"layer": scenario.world.loss_layer},
        interrupted=outcome.interrupted,
        broke="" if outcome.error is None else str(outcome.error),
        unfinished=outcome.unfinished,
        software=outcome.software,
        resumed=[] if resumption is None else resumptions(directory.path),
        **outcome.stalled,
    )
    return finish(directory, facts)
