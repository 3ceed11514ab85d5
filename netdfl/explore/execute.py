"""One explored run: the fleet under the supervisor in the simulated world, and nothing on the disk.

What runs of one scenario share is made once; what is judged is held in memory.
"""

from __future__ import annotations

import gc
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from netdfl.core.errors import NetdflError, RunError
from netdfl.diagnosis.finding import Finding
from netdfl.explore.observed import facts_of, observe
from netdfl.explore.rows import Rows
from netdfl.host.blueprint import Blueprint
from netdfl.record.directory import RunDirectory
from netdfl.record.judge import Verdict
from netdfl.record.verdict import conclude
from netdfl.scenario.model.schema import Checkpoint, Scenario
from netdfl.supervisor.supervisor import Supervisor
from netdfl.worlds.base import Setting
from netdfl.worlds.simulated.world import SimulatedWorld

LIMIT_S = 30.0
"""How long one run may compute; a simulated second costs what happens in it, so this is an endless loop."""


class TookTooLong(SystemExit):
    """A run that did not end; of a kind that passes through event loops."""


@dataclass(frozen=True)
class ExploredRun:
    """One run as a predicate sees it: what was recorded, what stalled, and the verdict, with its reasons.

    `unmet` are the entries of `expect` that these are about.
    `broke` is the traceback of what broke netdfl itself; then there is no verdict but `unknown`.
    """

    scenario: Scenario
    rows: Rows
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
    """Runs variants of one scenario, which differ in events, luck and expectations; others get parts of their own."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        """Nothing is made before the first run; each may compute for `limit_s`."""
        self._limit_s = limit_s
        self._shared: tuple[dict[str, object], Blueprint] | None = None
        self._runs = 0

    def run(self, scenario: Scenario) -> ExploredRun:
        """Run `scenario` to its end, whatever that is. Raises InputError where it can't begin."""
        rows = Rows()
        evaluation = scenario.evaluation.model_copy(update={"keep_models": False})
        scenario = scenario.model_copy(update={"checkpoint": Checkpoint(every=None), "evaluation": evaluation})
        self._runs += 1
        if self._runs == 2:  # what is there after a run stays, and need not be looked through again
            gc.collect()
            gc.freeze()
        try:
            with _limited(self._limit_s):
                return self._supervise(scenario, rows)
        except (Exception, TookTooLong) as error:
            if isinstance(error, NetdflError) and not isinstance(error, RunError):
                raise
            return ExploredRun(scenario, rows, broke=traceback.format_exc(), error=error)

    def _supervise(self, scenario: Scenario, rows: Rows) -> ExploredRun:
        directory = RunDirectory(Path("nowhere"), page=False, kept=False)
        world = SimulatedWorld(Setting(scenario, directory, _silent, blueprint=self._blueprint(scenario)))
        supervisor = Supervisor(scenario, directory, world, note=_silent, show=_silent, store=rows)
        self._watch(scenario, supervisor, world)
        outcome = world.run(supervisor.run, supervisor.interrupt)
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.error is not None:
            raise outcome.error
        length_ns = round((outcome.figures.virtual_duration_s or 0.0) * 1e9)
        stalls = tuple(supervisor.stalls.watch.findings)
        concluded = conclude(observe(rows), facts_of(scenario, stalls, outcome.unfinished, length_ns))
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
        """Put another watch for stalls in the place of the supervisor's own, in a subclass that has one."""

    def _blueprint(self, scenario: Scenario) -> Blueprint:
        """What all nodes share: made anew only where the scenario differs in more than a blueprint can take."""
        key = {name: getattr(scenario, name) for name in _DECIDES}
        if self._shared is None or self._shared[0] != key:
            self._shared = (key, Blueprint.of(scenario))
        return self._shared[1]


_DECIDES = ("seed", "nodes", "rounds", "task", "algorithm", "topology", "compression", "delivery", "wait", "links")


def _silent(*said: object) -> None:
    """Nobody watches."""


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """Raise `TookTooLong` in what computes for longer, where this is the thread that gets signals."""
    if threading.current_thread() is not threading.main_thread() or not limit_s:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TookTooLong(f"the run was not over after {limit_s:g} s")

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
