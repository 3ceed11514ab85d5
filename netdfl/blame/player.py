"""Run a scenario without some possible causes of its cost. Outcomes are stored, so that no variant is run twice."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from typing_extensions import override

from netdfl.blame.candidates import Candidate
from netdfl.blame.outcome import PlayOutcome, outcome_of
from netdfl.blame.removal import Counterfactuals
from netdfl.blame.store import LocalRoundStore
from netdfl.core.errors import InputError, RunError
from netdfl.core.files import open_append, read_plain, version_of, writing
from netdfl.explore.edits import Plain
from netdfl.explore.execute import Executor, ExploredRun, RunTimeout
from netdfl.explore.shrink import beside
from netdfl.host.blueprint import Blueprint, make_algorithm
from netdfl.scenario.model.schema import Scenario
from netdfl.supervisor.supervisor import Supervisor
from netdfl.worlds.simulated.world import SimulatedWorld

PLAYS = "plays.jsonl"
_OUTCOME = TypeAdapter(PlayOutcome)


class VariantExecutor(Executor):
    """An executor of variants of one scenario. Training task, data and graph are built once and used in all of them."""

    def __init__(self, limit_s: float = 0) -> None:
        """Let each run compute for at most `limit_s` seconds; 0 sets no limit."""
        super().__init__(limit_s)
        self.blueprint: Blueprint | None = None
        self.store = LocalRoundStore()

    def allow(self, limit_s: float) -> None:
        """Let each later run compute for at most `limit_s` seconds; 0 sets no limit."""
        self._limit_s = limit_s

    @property
    def trains(self) -> bool:
        """Whether the runs train a model; the outcomes of local rounds are then kept for later runs."""
        return self.blueprint is not None and not self.blueprint.plain

    @override
    def _watch(self, scenario: Scenario, supervisor: Supervisor, world: SimulatedWorld) -> None:
        if self.trains:
            world.remembers = self.store

    @override
    def _blueprint(self, scenario: Scenario) -> Blueprint:
        if self.blueprint is None:
            self.blueprint = Blueprint.of(scenario)
        return replace(self.blueprint, scenario=scenario, algorithm=make_algorithm(scenario))


class PlayJournal:
    """The outcomes of earlier reruns, in a file, by a hash of each rerun's scenario; damaged lines are skipped."""

    def __init__(self, folder: Path | None) -> None:
        """Read the outcomes of earlier reruns in `folder`; with None, nothing is stored on disk."""
        self._folder = folder
        self.plays: dict[str, PlayOutcome] = {}
        if folder is not None and (folder / PLAYS).exists():
            for line in read_plain(folder / PLAYS).splitlines():
                self._read(line)

    def _read(self, line: str) -> None:
        try:
            key, found = json.loads(line)
            self.plays[key] = _OUTCOME.validate_python(found)
        except (ValueError, TypeError, ValidationError):
            pass

    def keep(self, key: str, outcome: PlayOutcome) -> None:
        """Store a rerun's outcome under `key`, a hash of its scenario. Raises InputError if the disk refuses it."""
        self.plays[key] = outcome
        if self._folder is None:
            return
        with writing(self._folder / PLAYS, more="; name another folder with --out DIR"):
            self._folder.mkdir(parents=True, exist_ok=True)
            file = open_append(self._folder / PLAYS)
            try:
                os.write(file, (json.dumps([key, asdict(outcome)], separators=(",", ":")) + "\n").encode())
            finally:
                os.close(file)


class CounterfactualPlayer:
    """A runner of a scenario without some possible causes of its cost.

    `played` counts runs whose outcome the journal did not have.
    """

    def __init__(
        self,
        scenario: Scenario,
        executor: VariantExecutor,
        variants: Counterfactuals,
        journal: PlayJournal,
        sources: str,
    ) -> None:
        """Run the `variants` of `scenario` with `executor`, and store the outcomes in `journal`.

        `sources` is a hash of the user's modules and of the files that the scenario names.
        """
        self.scenario, self.variants = scenario, variants
        self.executor, self._journal = executor, journal
        self._salt = f"{version_of('netdfl')} {sources}"
        self.played = 0

    def known(self, candidates: Collection[Candidate]) -> bool:
        """Return whether the journal has the outcome of the scenario without `candidates` (possible causes)."""
        return self._key(self.variants.without(candidates)) in self._journal.plays

    def play(self, candidates: Collection[Candidate]) -> PlayOutcome:
        """Return the outcome of the scenario without `candidates` (possible causes), from the journal or by a run.

        Raises:
            InputError: The run reached its time limit.
            RunError: The run failed by an error inside netdfl.
        """
        plain = self.variants.without(candidates)
        key = self._key(plain)
        if key not in self._journal.plays:
            self.played += 1
            self._journal.keep(key, self._run(plain))
        return self._journal.plays[key]

    def record(self, candidates: Collection[Candidate]) -> ExploredRun:
        """Make the run without the possible causes `candidates`, even if its outcome is known; return its record too.

        Raises as `play` does.
        """
        plain = self.variants.without(candidates)
        return checked(self.executor.run(beside(self.scenario, plain)))

    def _run(self, plain: Plain) -> PlayOutcome:
        run = checked(self.executor.run(beside(self.scenario, plain)))
        return outcome_of(run, self.variants.drawn(run.rows.messages))

    def _key(self, plain: Plain) -> str:
        return sha256(f"{self._salt} {json.dumps(plain, sort_keys=True, default=str)}".encode()).hexdigest()


def checked(run: ExploredRun) -> ExploredRun:
    """Return `run`. Raises InputError if it reached its time limit, and RunError if an error inside netdfl ended it."""
    if isinstance(run.error, RunTimeout):
        raise InputError(str(run.error))
    if run.broke:
        raise RunError(f"a play of {run.scenario.name} broke: {run.broke.strip().splitlines()[-1]}")
    return run
