"""An exploration: trials of a scenario until the budget is spent, grouped by the cause of what failed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from math import sqrt
from pathlib import Path
from typing import NamedTuple

from netdfl.core.errors import InputError
from netdfl.core.files import version_of
from netdfl.explore.acted import Acted, added
from netdfl.explore.cause import Cause, find_predicates, is_raised
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.faults import Course, allowed
from netdfl.explore.journal import Journal
from netdfl.explore.pool import Laboratory, Ran, RunAll, workers
from netdfl.explore.search import Search
from netdfl.explore.trial import Trial
from netdfl.scenario.loading.identity import hashes
from netdfl.scenario.model.explore import FaultKind
from netdfl.scenario.model.plugins import ORIGIN, files_beside
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import SimulatedOptions
from netdfl.worlds.catalog import entry_of

BATCH = 32
"""Trials between two looks at what was reached: the search does not depend on how many processes there are."""


@dataclass(frozen=True)
class Budget:
    """How long to search: so many runs, or so many seconds of the wall clock, whichever is over first."""

    runs: int | None = None
    seconds: float | None = None


@dataclass
class Found:
    """One finding: the cause, a trial that shows it with as few events as any did, and how often it was met.

    `rounds` are those in which it was, `variants` how often it looked how, `examples` a trial of each.
    """

    cause: Cause
    trial: Trial
    broke: str = ""
    numbers: list[int] = field(default_factory=list)
    num_fresh: int = 0
    rounds: set[int] = field(default_factory=set)
    variants: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Trial] = field(default_factory=dict)

    def take(self, trial: Trial, cause: Cause, broke: str) -> None:
        """Count a trial that shows it."""
        self.numbers.append(trial.number)
        self.num_fresh += trial.fresh
        if cause.round >= 0:
            self.rounds.add(cause.round)
        if cause.variant:
            self.variants[cause.variant] += 1
            self.examples.setdefault(cause.variant, trial)
        if _shorter(trial, self.trial):
            self.cause, self.trial, self.broke = cause, trial, broke


def _shorter(one: Trial, other: Trial) -> bool:
    return len(one.events) < len(other.events)


@dataclass
class Explored:
    """What an exploration came to.

    `num_fresh` of the runs were drawn independently of all others: rates are of these. `left_out` are kinds of faults
    that the scenario can't have, and why; `refused` trials could not begin. `acted` counts the faults that were drawn.
    """

    scenario: Scenario
    findings: dict[str, Found] = field(default_factory=dict)
    runs: int = 0
    num_fresh: int = 0
    refused: int = 0
    reached: int = 0
    left_out: Mapping[FaultKind, str] = field(default_factory=dict)
    why_stopped: str = ""
    acted: Acted = field(default_factory=dict)

    def rate(self, found: Found) -> Rate:
        """How often a run that is drawn afresh is this finding."""
        return wilson(found.num_fresh, self.num_fresh)

    def take(self, trial: Trial, ran: Ran) -> None:
        """Count what came of a trial."""
        self.runs += 1
        self.num_fresh += trial.fresh
        self.refused += bool(ran.refused)
        self.acted = added(self.acted, ran.acted)
        if ran.cause is None:
            return
        found = self.findings.setdefault(ran.cause.key, Found(ran.cause, trial, ran.broke))
        found.take(trial, ran.cause, ran.broke)


Show = Callable[[Explored], None]


@dataclass
class Exploration:
    """One exploration of `scenario`; the same seed searches the same way.

    `stop_on_error`: end where a predicate raises, rather than count it as a finding. `guided`: change what reached
    something new, rather than draw every trial afresh. `predicates` are found by the scenario where there are none.
    """

    scenario: Scenario
    seed: int = 0
    jobs: int = 1
    folder: Path | None = None
    guided: bool = True
    stop_on_error: bool = False
    executor: Executor = field(default_factory=Executor)

    def __post_init__(self) -> None:
        """Check that it can be, by two runs. Raises InputError."""
        check_explorable(self.scenario)
        self.predicates = find_predicates(self.scenario)
        self.course = Course.of(self._repeated())
        self.rates, self.left_out = allowed(self.scenario, self.course)
        self.laboratory = Laboratory(self.scenario, self.predicates, self.executor)

    def run(self, budget: Budget, show: Show = lambda explored: None) -> Explored:
        """Search until the budget is spent, going on where the folder was left; `show` is told after each run."""
        search = Search(self.scenario, self.course, self.rates, self.seed, self.guided)
        explored = Explored(self.scenario, left_out=self.left_out)
        journal = None if self.folder is None else Journal(self.folder, *self._settings())
        if journal is not None and self.scenario.file is not None:  # what was found has its parts from there
            journal.write(ORIGIN, json.dumps({"directory": str(self.scenario.file.parent)}) + "\n")
        lines = () if journal is None else journal.read()
        known = {trial.number: (trial, ran) for trial, ran in lines if not ran.is_of_old_form}
        try:
            with workers(self.laboratory, self.jobs) as run_all:
                self._search(search, explored, budget, known, journal, run_all, show)
        except KeyboardInterrupt:
            explored.why_stopped = "interrupted"
        finally:
            if journal is not None:
                journal.close()
        return explored

    def _search(
        self,
        search: Search,
        explored: Explored,
        budget: Budget,
        known: Mapping[int, tuple[Trial, Ran]],
        journal: Journal | None,
        run_all: RunAll,
        show: Show,
    ) -> None:
        ends_s = None if budget.seconds is None else time.monotonic() + budget.seconds
        for first in range(0, budget.runs if budget.runs is not None else 1 << 62, BATCH):
            last = first + BATCH if budget.runs is None else min(first + BATCH, budget.runs)
            trials = [search.draw(number) for number in range(first, last)]
            done: dict[int, Ran] = {}
            left = [trial for trial in trials if trial.number not in known]
            old = [known[trial.number][1] for trial in trials if trial.number in known]
            for ran in chain(old, run_all(left)):
                trial = trials[ran.number - first]
                done[ran.number] = ran
                explored.take(trial, ran)
                if journal is not None and ran.number not in known:
                    journal.add(trial, ran)
                explored.reached = search.num_reached
                show(explored)
                if self.stop_on_error and ran.cause is not None and is_raised(ran.cause):
                    explored.why_stopped = ran.cause.text
                    return
                if ends_s is not None and time.monotonic() >= ends_s:
                    return
            for trial in trials:
                search.learn(trial, done[trial.number].features)

    def _repeated(self) -> ExploredRun:
        """The run without drawn faults; it must give the same twice. Raises InputError."""
        first, again = (self.executor.run(self.scenario) for _ in range(2))
        if first.event_log_hash != again.event_log_hash:
            raise InputError(
                "the scenario does not repeat: two runs with one seed gave two event logs; `netdfl run "
                "--check-determinism` names the first event that differs"
            )
        return first

    def _settings(self) -> list[dict[str, object]]:
        """What must be equal for an exploration to go on: as this version writes it, and as earlier ones did."""
        rest = {
            "parts": _parts(self.scenario),
            "seed": self.seed,
            "guided": self.guided,
            "netdfl": version_of("netdfl"),
        }
        return [{"scenario": each, **rest} for each in hashes(self.scenario)]


def check_explorable(scenario: Scenario) -> None:
    """Raise InputError where runs of `scenario` don't repeat, or can't be made in memory."""
    kind, world = scenario.world.kind, scenario.world
    if not isinstance(world, SimulatedOptions):
        why = "runs on the real clock, and" if not entry_of(scenario).repeatable else "is a world of one's own, and"
        raise InputError(f"world {kind} can't be explored: it {why} a search needs runs in memory; use --on simulated")
    compute = world.compute
    if compute.kind == "measured" and not compute.params.get("file"):
        raise InputError(
            "world.compute: measured can't be explored: what this machine takes differs each time; name the "
            "compute.json of a run as its file, or give a time"
        )
    if scenario.batching == "auto":
        raise InputError("task.batching: auto can't be explored: its numbers depend on who trains together; use exact")
    if scenario.device.startswith("cuda"):
        raise InputError("task.device: cuda can't be explored: its processes share what is made once; use cpu")


def _parts(scenario: Scenario) -> str:
    """A hash of the modules beside the scenario, which its own parts and predicates may be made of."""
    if scenario.file is None:
        return ""
    texts = [path.read_bytes() for path in files_beside(scenario.file) if path.is_file()]
    return sha256(b"\0".join(texts)).hexdigest()


def by_rate(explored: Explored) -> Sequence[Found]:
    """The findings, those that were met most often first."""
    return sorted(explored.findings.values(), key=lambda found: (-len(found.numbers), found.cause.key))


Z = 1.959964
"""The quantile of the normal distribution for an interval of 95 %."""


class Rate(NamedTuple):
    """`hits` of `runs`, with Wilson's interval of 95 %."""

    hits: int
    runs: int
    low: float
    high: float

    def __str__(self) -> str:
        """`12 of 400 (3.0 %, 1.7 to 5.2)`."""
        share = self.hits / max(1, self.runs)
        return f"{self.hits} of {self.runs} ({100 * share:.3g} %, {_percent(self.low)} to {_percent(self.high)})"


def _percent(share: float) -> str:
    """Two digits, or 100."""
    return f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.0f}"


def wilson(hits: int, runs: int) -> Rate:
    """The rate of `hits` in `runs` (Wilson 1927); from 0 to 1 where there was no run."""
    if not runs:
        return Rate(hits, runs, 0.0, 1.0)
    share, z2 = hits / runs, Z * Z
    middle = (share + z2 / (2 * runs)) / (1 + z2 / runs)
    half = Z / (1 + z2 / runs) * sqrt(share * (1 - share) / runs + z2 / (4 * runs * runs))
    return Rate(hits, runs, max(0.0, middle - half), min(1.0, middle + half))
