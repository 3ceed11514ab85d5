"""The running of trials (runs with drawn faults) in this process, or in processes forked from it.

A forked process shares the parts of runs that this process has built already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from netdfl.core.errors import InputError
from netdfl.core.forks import do_work, forked
from netdfl.explore.acted import Acted, acted_of
from netdfl.explore.cause import VERDICT, FailureCause, Predicate, cause_of, is_of_words, is_stall
from netdfl.explore.execute import Executor
from netdfl.explore.features import features_of
from netdfl.explore.trial import Trial, variant
from netdfl.scenario.model.schema import Scenario


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial, which is one run of an exploration with drawn faults.

    Attributes:
        number: the trial's number.
        cause: the cause of its failure; None if it did not fail.
        features: hashes of the situations that its run reached.
        event_log_hash: the hash of its event log.
        refused: the reason why it could not start; empty if it started.
        broke: a traceback if netdfl itself broke.
        acted: for each kind of fault, how many it had, and how many of them had an effect.
    """

    number: int
    cause: FailureCause | None = None
    features: frozenset[int] = frozenset()
    event_log_hash: str = ""
    refused: str = ""
    broke: str = ""
    acted: Acted = field(default_factory=dict)

    @property
    def is_of_old_form(self) -> bool:
        """Whether the cause of failure is stored in netdfl 0.2.0's format, so that the trial must be run again."""
        cause = self.cause
        return cause is not None and ((is_stall(cause.key) and not cause.variant) or is_of_words(cause.key))


@dataclass(frozen=True)
class TrialRunner:
    """A runner of trials of one scenario: simulated runs with drawn faults, whose failures it classifies."""

    scenario: Scenario
    predicates: Sequence[Predicate]
    executor: Executor

    def run(self, trial: Trial) -> TrialResult:
        """Run one trial; return its result, with the cause of its failure, if any."""
        try:
            run = self.executor.run(variant(self.scenario, trial.events, trial.luck))
        except InputError as error:
            return TrialResult(trial.number, refused=str(error))
        cause = cause_of(run, self.predicates, verdict=VERDICT in self.scenario.explore.find)
        return TrialResult(
            trial.number, cause, features_of(run), run.event_log_hash, "", run.broke, acted_of(run, trial.events)
        )


RunAll: TypeAlias = Callable[[Sequence[Trial]], Iterator[TrialResult]]


@contextmanager
def workers(trial_runner: TrialRunner, jobs: int) -> Iterator[RunAll]:
    """Yield a function that runs trials on `jobs` processes; their results come in any order.

    It raises RunError if a process dies.
    """
    if jobs == 1:
        yield lambda trials: map(trial_runner.run, trials)
        return

    def run_all(trials: Sequence[Trial]) -> Iterator[TrialResult]:
        for done in as_completed([pool.submit(do_work, trial) for trial in trials]):
            yield done.result()

    died = "a process of the exploration died: out of memory?; what was found is kept"
    with forked(trial_runner.run, jobs, died) as pool:
        yield run_all
