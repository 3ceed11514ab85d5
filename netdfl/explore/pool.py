"""Runs trials: here, or in processes forked from this one, which share what it has made."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from netdfl.core.errors import InputError, RunError
from netdfl.explore.acted import Acted, acted_of
from netdfl.explore.cause import VERDICT, Cause, Predicate, cause_of, is_of_words, is_stall
from netdfl.explore.execute import Executor
from netdfl.explore.features import features_of
from netdfl.explore.trial import Trial, variant
from netdfl.scenario.model.schema import Scenario


@dataclass(frozen=True)
class Ran:
    """What came of a trial. `refused` says why it could not begin; `broke` is a traceback.

    `acted` says of its faults how many acted.
    """

    number: int
    cause: Cause | None = None
    features: frozenset[int] = frozenset()
    event_log_hash: str = ""
    refused: str = ""
    broke: str = ""
    acted: Acted = field(default_factory=dict)

    @property
    def is_of_old_form(self) -> bool:
        """Whether its cause is the words of a sentence, as netdfl 0.2.0 kept it: it has to be run again."""
        cause = self.cause
        return cause is not None and ((is_stall(cause.key) and not cause.variant) or is_of_words(cause.key))


@dataclass(frozen=True)
class Laboratory:
    """Where trials of one scenario are run."""

    scenario: Scenario
    predicates: Sequence[Predicate]
    executor: Executor

    def run(self, trial: Trial) -> Ran:
        """Run one."""
        try:
            run = self.executor.run(variant(self.scenario, trial.events, trial.luck))
        except InputError as error:
            return Ran(trial.number, refused=str(error))
        cause = cause_of(run, self.predicates, verdict=VERDICT in self.scenario.explore.find)
        return Ran(
            trial.number, cause, features_of(run), run.event_log_hash, "", run.broke, acted_of(run, trial.events)
        )


RunAll: TypeAlias = Callable[[Sequence[Trial]], Iterator[Ran]]
_here: Laboratory | None = None


@contextmanager
def workers(laboratory: Laboratory, jobs: int) -> Iterator[RunAll]:
    """Run trials on `jobs` processes; they come back in any order. Raises RunError where such a process dies."""
    if jobs == 1:
        yield lambda trials: map(laboratory.run, trials)
        return
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), _begin, (laboratory,))

    def run_all(trials: Sequence[Trial]) -> Iterator[Ran]:
        try:
            for done in as_completed([pool.submit(_run, trial) for trial in trials]):
                yield done.result()
        except BrokenProcessPool as error:
            raise RunError("a process of the exploration died: out of memory?; what was found is kept") from error

    try:
        yield run_all
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(laboratory: Laboratory) -> None:
    global _here
    _here = laboratory
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _run(trial: Trial) -> Ran:
    assert _here is not None
    return _here.run(trial)
