"""The supervision of a fleet in its scenario's world, from its start to its end."""

from __future__ import annotations

import time
from pathlib import Path

from netdfl.core.errors import InputError, NetdflError, RunError
from netdfl.core.no_memory import is_of_memory
from netdfl.core.whose import theirs
from netdfl.record.directory import RunDirectory
from netdfl.record.status import Display
from netdfl.running.display import SilentDisplay
from netdfl.scenario.model.schema import Scenario
from netdfl.supervisor.resumption import Resumption
from netdfl.supervisor.supervisor import FleetOutcome, Supervisor
from netdfl.worlds.base import WorldConfig
from netdfl.worlds.catalog import entry_of
from netdfl.worlds.fork_client import ForkServer


def supervise(
    scenario: Scenario,
    directory: RunDirectory,
    display: Display | None = None,
    *,
    forkserver: ForkServer | None = None,
    resumption: Resumption | None = None,
    keep_log: Path | None = None,
) -> FleetOutcome:
    """Run `scenario` in its world, with `directory` as the run directory; return how the run ended.

    Args:
        scenario: the scenario.
        directory: the run directory.
        display: shows the fleet while it runs; by default nothing does.
        forkserver: a fork server that was opened earlier.
        resumption: how a killed run is continued; None: the run is a new one.
        keep_log: the file for the lines of the event log, if the world makes such a log.

    Raises InputError if the fleet can't begin.
    """
    display = display or SilentDisplay()
    world = entry_of(scenario).make(WorldConfig(scenario, directory, display.note, forkserver, keep_log))
    supervisor = Supervisor(scenario, directory, world, note=display.note, show=display.update, resumption=resumption)
    began = time.monotonic()
    try:
        return world.run(supervisor.run, supervisor.interrupt)
    except BaseException as error:
        known: Exception | None = theirs(error) if supervisor.fleet.start_ns is not None else None
        known = known or (error if isinstance(error, NetdflError) else None)
        if known is None and is_of_memory(error) and supervisor.fleet.start_ns is not None:
            known = RunError(f"no memory was left while the fleet ran ({type(error).__name__}: {error})")
        if known is None or isinstance(known, InputError):
            raise
        return FleetOutcome(
            time.monotonic() - began, supervisor.fleet.status, interrupted=supervisor.interrupted, error=known
        )
    finally:
        display.update(supervisor.fleet.status)
