"""One run of an exploration: a simulated fleet under its supervisor, without files.

Parts that runs of one scenario share are made once; the run's record is held in memory.
"""

from __future__ import annotations

import atexit
import gc
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from netdfl.core.errors import Interruption, NetdflError, RunError
from netdfl.diagnosis.finding import Finding
from netdfl.explore.observed import facts_of, observe
from netdfl.explore.rows import MemoryStore
from netdfl.host.blueprint import Blueprint
from netdfl.record.directory import RunDirectory
from netdfl.record.evaluated import chance_of
from netdfl.record.judge import Verdict
from netdfl.record.verdict import conclude
from netdfl.scenario.model.schema import Checkpoint, Scenario
from netdfl.supervisor.supervisor import FleetOutcome, Supervisor
from netdfl.worlds.base import WorldConfig
from netdfl.worlds.simulated.world import SimulatedWorld

LIMIT_S = 30.0
"""The most CPU time in seconds that a run may use. A run that needs more is taken to have an endless loop."""


class RunTimeout(Interruption):
    """The error for a run that did not end in time."""


@dataclass(frozen=True)
class ExploredRun:
    """One run of an exploration, as a user's predicates receive it.

    Attributes:
        scenario: the scenario.
        rows: the run's record, in memory.
        stalls: the diagnoses of its stalls.
        unfinished: sentences about nodes that should have finished and have not, without being stalled.
        verdict: whether it met the scenario's `expect`; `unknown` if netdfl itself broke.
        reasons: the reasons of the verdict.
        unmet: the entry of `expect` behind each reason.
        figures: the metrics of its result, by name.
        length_ns: its length in virtual time.
        event_log_hash: the hash of its event log.
        broke: a traceback if netdfl itself broke.
        error: the error that ended the run, if any.
    """

    scenario: Scenario
    rows: MemoryStore
    stalls: tuple[Finding, ...] = ()
    unfinished: tuple[str, ...] = ()
    verdict: Verdict = "unknown"
    reasons: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    figures: dict[str, float | None] = field(default_factory=dict)
    length_ns: int = 0
    event_log_hash: str = ""
    broke: str = ""
    error: BaseException | None = None


class Executor:
    """A runner of simulated runs of one scenario's variants; parts that do not differ between them are built once."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        """Prepare to run; each run may use `limit_s` seconds of CPU time."""
        self._limit_s = limit_s
        self._shared: tuple[dict[str, object], Blueprint] | None = None
        self._runs = 0

    def run(self, scenario: Scenario) -> ExploredRun:
        """Run `scenario` to its end, good or bad. Raises InputError if it can't start."""
        rows = MemoryStore()
        evaluation = scenario.evaluation.model_copy(update={"keep_models": False})
        scenario = scenario.model_copy(update={"checkpoint": Checkpoint(every=None), "evaluation": evaluation})
        self._runs += 1
        if self._runs == 2:  # what is there after a run stays, and need not be looked through again
            gc.collect()
            gc.freeze()
            if "duckdb" in sys.modules:  # as this process ends it would call what is frozen leaked, in fifty lines
                atexit.register(gc.unfreeze)
        try:
            with _limited(self._limit_s):
                return self._supervise(scenario, rows)
        except (Exception, RunTimeout) as error:
            if isinstance(error, NetdflError) and not isinstance(error, RunError):
                raise
            return ExploredRun(scenario, rows, broke=traceback.format_exc(), error=error)

    def _supervise(self, scenario: Scenario, rows: MemoryStore) -> ExploredRun:
        directory = RunDirectory(Path("nowhere"), page=False, kept=False)
        world = SimulatedWorld(WorldConfig(scenario, directory, _silent, blueprint=self._blueprint(scenario)))
        supervisor = Supervisor(scenario, directory, world, note=_silent, show=_silent, store=rows)
        self._watch(scenario, supervisor, world)
        outcome = world.run(supervisor.run, supervisor.interrupt)
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.error is not None:
            raise outcome.error
        return self._judged(scenario, rows, tuple(supervisor.stalls.history.findings), outcome)

    def _judged(
        self, scenario: Scenario, rows: MemoryStore, stalls: tuple[Finding, ...], outcome: FleetOutcome
    ) -> ExploredRun:
        """Return the run with its verdict and metrics, from its record `rows`, diagnosed `stalls` and `outcome`."""
        length_ns = round((outcome.figures.virtual_duration_s or 0.0) * 1e9)
        chance = chance_of(self._blueprint(scenario).problem.partition())
        concluded = conclude(observe(rows, chance), facts_of(scenario, stalls, outcome.unfinished, length_ns))
        judged = concluded.judgement
        return ExploredRun(
            scenario=scenario,
            rows=rows,
            stalls=stalls,
            unfinished=tuple(outcome.unfinished),
            verdict=judged.verdict,
            reasons=tuple(judged.reasons),
            unmet=judged.entries,
            figures={name: value for name, value in concluded.figures.items() if name != "duration_s"},
            length_ns=length_ns,
            event_log_hash=outcome.figures.event_log_hash or "",
        )

    def _watch(self, scenario: Scenario, supervisor: Supervisor, world: SimulatedWorld) -> None:
        """Do nothing; a subclass can replace the supervisor's stall watch here."""

    def _blueprint(self, scenario: Scenario) -> Blueprint:
        """Return the parts that all nodes of a run share, built anew only if `scenario` needs different ones."""
        key = {name: getattr(scenario, name) for name in _DECIDES}
        if self._shared is None or self._shared[0] != key:
            self._shared = (key, Blueprint.of(scenario))
        return self._shared[1]


_DECIDES = ("seed", "nodes", "rounds", "task", "algorithm", "topology", "compression", "delivery", "wait", "links")


def _silent(*said: object) -> None:
    """Do nothing, because no person watches an explored run."""


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """Raise `RunTimeout` inside the `with` block after `limit_s` seconds of CPU time (0: never).

    Outside the main thread, which alone receives signals, there is no limit.
    """
    if threading.current_thread() is not threading.main_thread() or not limit_s:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise RunTimeout(f"the run was not over after {limit_s:g} s")

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
