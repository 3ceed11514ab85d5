"""An exploration: simulated runs of a scenario with drawn faults (trials), their failures grouped by cause."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from math import sqrt
from pathlib import Path
from typing import NamedTuple

from netdfl.core.errors import InputError
from netdfl.core.files import version_of
from netdfl.explore.acted import Acted, added
from netdfl.explore.cause import FailureCause, find_predicates, is_raised
from netdfl.explore.elsewhere import engine_workers
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.faults import Baseline, allowed
from netdfl.explore.journal import SOURCES, Journal
from netdfl.explore.pool import RunAll, TrialResult, TrialRunner, workers
from netdfl.explore.search import Search
from netdfl.explore.trial import Trial
from netdfl.scenario.loading.identity import hashes
from netdfl.scenario.loading.sources import sources_of
from netdfl.scenario.model.explore import FaultKind
from netdfl.scenario.model.plugins import ORIGIN, origin_form
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import SimulatedOptions
from netdfl.study.runners.base import RunnerChoice
from netdfl.worlds.catalog import entry_of

BATCH = 32
"""Number of trials in a batch. The search learns after each batch, so it is the same on any number of processes."""


@dataclass(frozen=True)
class Budget:
    """The limit of a search: a number of runs, or seconds of real time, whichever is reached first."""

    runs: int | None = None
    seconds: float | None = None


@dataclass
class Discovery:
    """One finding of an exploration: a cause of failure, and the trials (runs with drawn faults) that failed by it.

    Attributes:
        cause: the cause, as it was in `trial`.
        trial: the trial with the fewest events that failed by this cause.
        broke: the traceback of that trial, if netdfl itself broke.
        numbers: the numbers of all trials that failed by it.
        num_fresh: how many of these were drawn independently of all others.
        rounds: the rounds in which the failure occurred.
        variants: for each variant of the cause (a stall's set of reasons), the number of its trials.
        examples: for each variant, its first trial.
    """

    cause: FailureCause
    trial: Trial
    broke: str = ""
    numbers: list[int] = field(default_factory=list)
    num_fresh: int = 0
    rounds: set[int] = field(default_factory=set)
    variants: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Trial] = field(default_factory=dict)

    def take(self, trial: Trial, cause: FailureCause, broke: str) -> None:
        """Count a trial that failed by this cause; make it the example if it has fewer events than the present one."""
        self.numbers.append(trial.number)
        self.num_fresh += trial.fresh
        if cause.round >= 0:
            self.rounds.add(cause.round)
        if cause.variant:
            self.variants[cause.variant] += 1
            self.examples.setdefault(cause.variant, trial)
        if len(trial.events) < len(self.trial.events):
            self.cause, self.trial, self.broke = cause, trial, broke


@dataclass
class ExplorationResult:
    """The result of an exploration.

    Attributes:
        scenario: the explored scenario.
        findings: the findings, by the keys of their causes.
        runs: the number of runs.
        num_fresh: the number of runs drawn independently of all others; rates refer to these.
        refused: the number of trials whose scenario with the drawn faults was invalid, so that they could not begin.
        reached: the number of different features (situations, as hashes) that runs reached.
        left_out: the kinds of faults that the scenario can't have, each with the reason.
        why_stopped: why the search ended before its budget was spent; empty if it did not.
        acted: for each kind of fault, how many were drawn, and how many of them had an effect.
    """

    scenario: Scenario
    findings: dict[str, Discovery] = field(default_factory=dict)
    runs: int = 0
    num_fresh: int = 0
    refused: int = 0
    reached: int = 0
    left_out: Mapping[FaultKind, str] = field(default_factory=dict)
    why_stopped: str = ""
    acted: Acted = field(default_factory=dict)

    def rate(self, found: Discovery) -> RateEstimate:
        """Return the rate at which an independently drawn run fails by the cause of `found`."""
        return wilson(found.num_fresh, self.num_fresh)

    def take(self, trial: Trial, ran: TrialResult) -> None:
        """Count the result `ran` of a trial, and its failure, if any, among the findings."""
        self.runs += 1
        self.num_fresh += trial.fresh
        self.refused += bool(ran.refused)
        self.acted = added(self.acted, ran.acted)
        if ran.cause is None:
            return
        found = self.findings.setdefault(ran.cause.key, Discovery(ran.cause, trial, ran.broke))
        found.take(trial, ran.cause, ran.broke)


Show = Callable[[ExplorationResult], None]


@dataclass
class Exploration:
    """One exploration of a scenario: a search for failing runs, by randomly drawn faults; repeatable by its seed.

    The scenario names the predicates that decide, beside the verdict, which runs fail.

    Attributes:
        scenario: the scenario.
        seed: the seed of the search.
        jobs: the number of processes on this machine that run trials, if there is no `engine`.
        folder: the folder for the journal and the findings; None: nothing is stored.
        guided: whether trials with new features are mutated; if not, each trial is drawn independently.
        stop_on_error: whether the search ends when a predicate raises; if not, the error is counted as a finding.
        executor: the runner of trials in this process.
        engine: the runner of trials on other machines, which needs a `folder`; None: trials run on this machine.
    """

    scenario: Scenario
    seed: int = 0
    jobs: int = 1
    folder: Path | None = None
    guided: bool = True
    stop_on_error: bool = False
    executor: Executor = field(default_factory=Executor)
    engine: RunnerChoice | None = None

    def __post_init__(self) -> None:
        """Check by two runs that the scenario can be explored. Raises InputError."""
        check_explorable(self.scenario)
        self.predicates = find_predicates(self.scenario)
        self.course = Baseline.of(self._repeated())
        self.rates, self.left_out = allowed(self.scenario, self.course)
        self.trial_runner = TrialRunner(self.scenario, self.predicates, self.executor)

    def run(self, budget: Budget, show: Show = lambda explored: None) -> ExplorationResult:
        """Search until the budget is spent, continuing an earlier search in the folder; call `show` after each run."""
        search = Search(self.scenario, self.course, self.rates, self.seed, self.guided)
        explored = ExplorationResult(self.scenario, left_out=self.left_out)
        journal = None if self.folder is None else Journal(self.folder, *self._settings())
        if journal is not None:  # what was found has its parts from there
            journal.write(ORIGIN, json.dumps(origin_form(self.scenario.folder)) + "\n")
        lines = () if journal is None else journal.read()
        known = {ran.number: ran for _, ran in lines if not ran.is_of_old_form}
        try:
            with self._workers() as run_all:
                self._search(search, explored, budget, partial(_results_of, run_all, known, journal), show)
        except KeyboardInterrupt:
            explored.why_stopped = "interrupted"
        finally:
            if journal is not None:
                journal.close()
        return explored

    def _search(self, search: Search, explored: ExplorationResult, budget: Budget, run_all: RunAll, show: Show) -> None:
        ends_s = None if budget.seconds is None else time.monotonic() + budget.seconds
        most = 1 << 62 if budget.runs is None else budget.runs
        for first in range(0, most, BATCH):
            trials = [search.draw(number) for number in range(first, min(first + BATCH, most))]
            for trial, ran in zip(trials, _in_order(run_all(trials), first), strict=True):
                explored.take(trial, ran)
                search.learn(trial, ran.features)
                explored.reached = search.num_reached
                show(explored)
                if self.stop_on_error and ran.cause is not None and is_raised(ran.cause):
                    explored.why_stopped = ran.cause.text
                    return
                if ends_s is not None and time.monotonic() >= ends_s:
                    return

    def _workers(self) -> AbstractContextManager[RunAll]:
        if self.engine is None:
            return workers(self.trial_runner, self.jobs)
        assert self.folder is not None
        return engine_workers(self.scenario, self.folder, self.engine)

    def _repeated(self) -> ExploredRun:
        """Return the run without drawn faults, made twice to check that it repeats itself. Raises InputError."""
        first, again = (self.executor.run(self.scenario) for _ in range(2))
        if first.event_log_hash != again.event_log_hash:
            raise InputError(
                "the scenario does not repeat: two runs with one seed gave two event logs; `netdfl run "
                "--check-determinism` names the first event that differs"
            )
        return first

    def _settings(self) -> list[dict[str, object]]:
        """Return the settings that must be equal for a search to be continued.

        The first entry has this netdfl version's hash of the scenario, the others have the hashes of earlier versions.
        """
        rest = {
            SOURCES: sources_of(self.scenario),
            "seed": self.seed,
            "guided": self.guided,
            "netdfl": version_of("netdfl"),
        }
        return [{"scenario": each, **rest} for each in hashes(self.scenario)]


def _results_of(
    run_all: RunAll, known: Mapping[int, TrialResult], journal: Journal | None, trials: Sequence[Trial]
) -> Iterator[TrialResult]:
    """Yield the results of `trials`: first the `known` ones; then run the others, and yield each result once stored."""
    yield from (known[trial.number] for trial in trials if trial.number in known)
    left = {trial.number: trial for trial in trials if trial.number not in known}
    for ran in run_all(list(left.values())):
        if journal is not None:
            journal.add(left[ran.number], ran)
        yield ran


def _in_order(results: Iterable[TrialResult], first: int) -> Iterator[TrialResult]:
    """Yield a batch's results sorted by number from `first` on, so that each failure has always the same example."""
    waiting: dict[int, TrialResult] = {}
    for ran in results:
        waiting[ran.number] = ran
        while first in waiting:
            yield waiting.pop(first)
            first += 1


def check_explorable(scenario: Scenario) -> None:
    """Raise InputError if runs of `scenario` are not repeatable, or can't be made in memory."""
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


def by_rate(explored: ExplorationResult) -> Sequence[Discovery]:
    """Return the causes of failure that an exploration found, the most frequent first."""
    return sorted(explored.findings.values(), key=lambda found: (-len(found.numbers), found.cause.key))


Z = 1.959964
"""The quantile of the normal distribution for an interval of 95 %."""


class RateEstimate(NamedTuple):
    """An estimated failure rate: `hits` of `runs`, with the bounds `low` and `high` of Wilson's 95 % interval."""

    hits: int
    runs: int
    low: float
    high: float

    def __str__(self) -> str:
        """Return the rate as text: `12 of 400 (3.0 %, 1.7 to 5.2)`."""
        share = self.hits / max(1, self.runs)
        return f"{self.hits} of {self.runs} ({100 * share:.3g} %, {_percent(self.low)} to {_percent(self.high)})"


def _percent(share: float) -> str:
    """Return a fraction of 1 in percent as text, with two digits, or as 100."""
    return f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.0f}"


def wilson(hits: int, runs: int) -> RateEstimate:
    """Return the rate of `hits` in `runs` with Wilson's interval (1927), which is 0 to 1 without any run."""
    if not runs:
        return RateEstimate(hits, runs, 0.0, 1.0)
    share, z2 = hits / runs, Z * Z
    middle = (share + z2 / (2 * runs)) / (1 + z2 / runs)
    half = Z / (1 + z2 / runs) * sqrt(share * (1 - share) / runs + z2 / (4 * runs * runs))
    low, high = 0.0 if hits == 0 else middle - half, 1.0 if hits == runs else middle + half  # else off by rounding
    return RateEstimate(hits, runs, low, high)
