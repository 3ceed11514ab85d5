"""Run a scenario: the one way for the command line, for Python, and for studies."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from netdfl.core.errors import InputError, NetdflError, RunError
from netdfl.diagnosis.fidelity import judge_fidelity
from netdfl.diagnosis.messages import with_messages
from netdfl.fleet.announcing import Announcing
from netdfl.fleet.compute import COMPUTE_FILE
from netdfl.fleet.interrupts import SIGNALS, WRITING, Patience
from netdfl.fleet.loops import outside_loops
from netdfl.fleet.spawn import Nursery
from netdfl.links.schedule.changes import link_changes
from netdfl.record.forms import damaged
from netdfl.record.judge import ExitCode
from netdfl.record.result import RunFacts, summarize
from netdfl.record.run import CHECKPOINTS, Run, RunDirectory, open_run
from netdfl.record.run_lock import LOCK, hold
from netdfl.record.status import FleetStatus
from netdfl.scenario.build import build_network, compile_schedule
from netdfl.scenario.explain.link_rules import link_rules
from netdfl.scenario.load import load
from netdfl.scenario.loading.resolved import to_yaml
from netdfl.scenario.model.schema import Scenario

if TYPE_CHECKING:
    from netdfl.fleet.resume import Resumption

RESUMED = ("simulated", "processes", "namespaces")
RESUMPTIONS = "resumed.json"
ORIGIN = "origin.json"
KEPT = ("scenario.yaml", ORIGIN, CHECKPOINTS, COMPUTE_FILE, LOCK)
"""What a resumed run takes over of the run that was killed."""


class View(Protocol):
    """Something that shows a fleet while it runs."""

    def update(self, status: FleetStatus) -> None:
        """Show the fleet as it is now."""
        ...

    def note(self, text: str) -> None:
        """Show a piece of news."""
        ...


class Silent:
    """Shows nothing."""

    def update(self, status: FleetStatus) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""


@dataclass(frozen=True)
class Finished:
    """A run that ended: where it lies, and what it is judged to be."""

    run: Run
    exit_code: ExitCode

    @property
    def result(self) -> dict[str, Any]:
        """The contents of `result.json`."""
        return self.run.result

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.run.path


def run(
    scenario: Scenario | str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    root: str | Path = "runs",
    page: bool = True,
    view: AbstractContextManager[View] | None = None,
    nursery: Nursery | None = None,
) -> Finished:
    """Run `scenario` in the world that it names, and judge it.

    Args:
        scenario: As loaded by `netdfl.load`, or what that takes: a file's path, or a mapping.
        out: The run directory; by default a new one below `root`.
        root: Where runs are kept.
        page: Whether to write `report.html`.
        view: Shows the fleet while it runs.
        nursery: One opened earlier, so that torch was imported meanwhile; it is closed here.

    Raises:
        InputError: nothing could be run, for a reason in the scenario, the data or the machine.
    """
    try:
        scenario = load(scenario)
        check_world(scenario)
        directory = RunDirectory.create(root, scenario.name, scenario.seed, out)
        try:
            with hold(directory.path):
                return _run_in(scenario, replace(directory, page=page), view, nursery)
        except InputError:
            if not directory.recorded:
                directory.abandon()
            raise
    finally:
        if nursery is not None:
            nursery.close()


def check_world(scenario: Scenario) -> None:
    """Raise InputError where the scenario's world has no launcher here."""
    if scenario.world.kind not in WORLDS:
        raise InputError(f"world {scenario.world.kind!r} can't be run here; use one of {', '.join(WORLDS)}")


def _run_in(
    scenario: Scenario, directory: RunDirectory, view: AbstractContextManager[View] | None, nursery: Nursery | None
) -> Finished:
    prepare(scenario, directory)
    with view or nullcontext(Silent()) as plain:
        shown = announcing(plain, scenario)
        say_layer(scenario, shown)
        return WORLDS[scenario.world.kind](scenario, directory, shown, nursery)


def resume(path: str | Path, *, page: bool = True, view: AbstractContextManager[View] | None = None) -> Finished:
    """Go on with the run in the directory `path`, which was killed or interrupted, and judge it; `page` as in `run`.

    A simulated run is played again from its start, with the local rounds that its checkpoints hold; see
    `netdfl.fleet.replay`. Real nodes go on from their checkpoints; see `netdfl.fleet.resume`.

    Raises:
        InputError: there is no such run, it goes on or has ended, or it can't be resumed.
    """
    found = open_run(path)
    with hold(found.path):
        return _resume(found, RunDirectory(found.path, page=page), view)


def _resume(found: Run, directory: RunDirectory, view: AbstractContextManager[View] | None) -> Finished:
    verdict = found.result.get("verdict") if found.finished else "unknown"
    if verdict != "unknown":
        raise InputError(f"{found.path} has ended with verdict {verdict}; run its scenario.yaml anew instead")
    scenario = load(found.path / "scenario.yaml")
    if scenario.world.kind != "simulated":
        return _resume_nodes(found, scenario, directory, view)
    for each in found.path.iterdir():
        if each.name not in KEPT:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    return _run_in(scenario, directory, view, None)


def _resume_nodes(
    found: Run, scenario: Scenario, directory: RunDirectory, view: AbstractContextManager[View] | None
) -> Finished:
    """Let the nodes of a run in a real world live again."""
    from netdfl.fleet.resume import find_resumption, note

    world = scenario.world.kind
    if world not in RESUMED:
        raise InputError(f"{found.path} is a run of world {world}; only runs of {', '.join(RESUMED)} can be resumed")
    with damaged(found.path, "resumed"):
        resumption = find_resumption(found, scenario)
        note(found.path, resumption)
    with view or nullcontext(Silent()) as shown:
        return run_processes(scenario, directory, announcing(shown, scenario), None, resumption)


def _resumptions(directory: RunDirectory) -> Sequence[Any]:
    from netdfl.fleet.resume import resumptions

    return resumptions(directory.path)


def announcing(view: View, scenario: Scenario) -> View:
    """Let `view` say what the schedule does to links."""
    changes = link_changes(compile_schedule(scenario))
    return Announcing(view, changes) if changes else view


def say_layer(scenario: Scenario, view: View) -> None:
    """Say that links act on packets where the scenario has rules for them and leaves that to its world."""
    options: Any = scenario.world
    written = (scenario.links or scenario.events) and "loss_layer" not in options.model_fields_set
    if written and options.loss_layer == "packet":
        view.note(
            "links lose and delay single packets, which TCP sends again, so messages come late rather than never; "
            "with `world: {loss_layer: message}` they lose whole messages"
        )


def prepare(scenario: Scenario, directory: RunDirectory) -> None:
    """Write what is known before the run: the resolved scenario and the graph of round 0."""
    directory.write("scenario.yaml", to_yaml(scenario))
    if scenario.file is not None and not (directory.path / ORIGIN).exists():
        directory.write_json(ORIGIN, {"directory": str(scenario.file.parent)})
    network = build_network(scenario)
    graph = network.graph(0)
    directory.write_json(
        "graph.json",
        {
            "num_nodes": network.num_nodes,
            "edges": [list(edge) for edge in graph.edges],
            "directed": not graph.is_symmetric,
            "server": network.server,
            "kind": scenario.topology.kind,
            "weights": scenario.topology.weights.kind,
            "redraw_every": network.topology.redraw_every,
            "chosen_anew": network.varies and not network.topology.time_varying,
        },
    )


def facts_of(scenario: Scenario, duration_s: float, **more: Any) -> RunFacts:
    """What the judge needs of the scenario, with `more` from the world."""
    return RunFacts(
        scenario=scenario.name,
        seed=scenario.seed,
        world=scenario.world.kind,
        algorithm=scenario.algorithm.kind,
        nodes=scenario.nodes,
        rounds=scenario.rounds,
        duration_s=duration_s,
        expect=scenario.expect.entries(),
        targets=scenario.report.targets,
        delivery=scenario.delivery.kind,
        link_rules=link_rules(scenario),
        **more,
    )


def finish(directory: RunDirectory, facts: RunFacts) -> Finished:
    """Judge what was recorded, write `result.json` and the report, of an interrupted run too."""
    found = open_run(directory.path)
    stalls, deadlocks = (with_messages(found, findings) for findings in (facts.stalls, facts.deadlocks))
    summary = summarize(found, replace(facts, stalls=stalls, deadlocks=deadlocks))
    exit_code = summary.judgement.exit_code
    try:
        directory.write_json("result.json", summary.result)
        if directory.page:
            from netdfl.report.html import write_report

            write_report(directory.path)
    except (InputError, RunError, OSError) as error:
        why = ": " + "; ".join(summary.judgement.reasons) if summary.judgement.reasons else ""
        raise RunError(f"{error}; the verdict was {summary.judgement.verdict}{why}") from error
    return Finished(found, exit_code)


def run_processes(
    scenario: Scenario,
    directory: RunDirectory,
    view: View,
    nursery: Nursery | None,
    resumption: Resumption | None = None,
) -> Finished:
    """Real gRPC nodes in local processes, in network namespaces or containers of their own where the world says so."""
    own = nursery or Nursery.open()
    world: Any = scenario.world
    status = FleetStatus(scenario.name, scenario.world.kind, scenario.algorithm.kind, scenario.rounds)
    try:
        outcome = outside_loops(lambda: asyncio.run(_launch(scenario, directory, view, own, status, resumption)))
    finally:
        own.close()
    if outcome.interrupted:
        view.note(WRITING)
    bound = world.fidelity
    fidelity = judge_fidelity(open_run(directory.path), relative=bound.relative, slack_ns=bound.slack)
    facts = facts_of(
        scenario,
        outcome.duration_s,
        fidelity=fidelity.summary,
        interrupted=outcome.interrupted,
        broke=outcome.broke,
        fidelity_missed=outcome.fidelity_missed or fidelity.missed,
        links=outcome.links or {"layer": world.loss_layer},
        unfinished=outcome.unfinished,
        resumed=_resumptions(directory) if resumption is not None else (),
        **outcome.stalled,
    )
    return finish(directory, facts)


async def _launch(
    scenario: Scenario,
    directory: RunDirectory,
    view: View,
    nursery: Nursery,
    status: FleetStatus,
    resumption: Resumption | None,
) -> Any:
    from netdfl.fleet.processes import Launcher, Outcome

    kind: type[Launcher] = Launcher
    if scenario.world.kind == "namespaces":
        from netdfl.fleet.namespaces import NamespaceLauncher

        kind = NamespaceLauncher
    if scenario.world.kind == "containers":
        from netdfl.fleet.containers import ContainerLauncher

        kind = ContainerLauncher
    launcher = kind(scenario, directory, nursery, status, view.note)
    launcher.resumption = resumption
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        patience = Patience(launcher.interrupt)
        for number in SIGNALS:
            loop.add_signal_handler(number, patience)
    showing = asyncio.create_task(_show(view, status))
    began = time.monotonic()
    try:
        return await launcher.run()
    except InputError:
        raise
    except NetdflError as error:
        return Outcome(time.monotonic() - began, launcher.interrupted, str(error))
    finally:
        showing.cancel()
        launcher.update_counts()
        view.update(status)


async def _show(view: View, status: FleetStatus) -> None:
    while True:
        view.update(status)
        await asyncio.sleep(0.25)


def run_simulated(scenario: Scenario, directory: RunDirectory, view: View, nursery: Nursery | None) -> Finished:
    """The whole fleet in this process, on a virtual clock."""
    if nursery is not None:
        nursery.close()
    from netdfl.fleet.simulated import simulate

    status = FleetStatus(scenario.name, scenario.world.kind, scenario.algorithm.kind, scenario.rounds)
    world: Any = scenario.world
    outcome = simulate(scenario, directory, status, view)
    if outcome.interrupted:
        view.note(WRITING)
    facts = facts_of(
        scenario,
        outcome.duration_s,
        virtual_duration_s=outcome.virtual_duration_s,
        unfinished=outcome.unfinished,
        event_log_hash=outcome.event_log_hash,
        **outcome.stalled,
        links={"layer": world.loss_layer} | ({"engine": "tcp model"} if world.loss_layer == "packet" else {}),
        interrupted=outcome.interrupted,
        broke=outcome.broke,
    )
    return finish(directory, facts)


WORLDS: dict[str, Callable[[Scenario, RunDirectory, View, Nursery | None], Finished]] = {
    "processes": run_processes,
    "namespaces": run_processes,
    "containers": run_processes,
    "simulated": run_simulated,
}
