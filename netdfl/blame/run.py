"""The search for causes of one run's cost: the run is repeated, compared with its record, and rerun without causes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from netdfl.blame.blaming import MOST_CANDIDATES, SET_RUNS, Blame, Show, fill, find_set
from netdfl.blame.candidates import KINDS, Candidate, find_candidates
from netdfl.blame.likely import by_likelihood
from netdfl.blame.outcome import outcome_of
from netdfl.blame.player import CounterfactualPlayer, PlayJournal, VariantExecutor, checked
from netdfl.blame.removal import Counterfactuals
from netdfl.blame.targets import TARGETS, BlameTarget, default_target
from netdfl.core.errors import InputError
from netdfl.explore.execute import LIMIT_S
from netdfl.record.directory import RunDirectory
from netdfl.record.remarks import counts_the_living
from netdfl.record.run import Run, open_run
from netdfl.replaying.checking import replayable
from netdfl.scenario.load import load
from netdfl.scenario.loading.sources import hash_of_sources
from netdfl.scenario.model.parts import Part
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import SimulatedOptions
from netdfl.worlds.simulated.compute import COMPUTE_FILE
from netdfl.worlds.simulated.measuring import compute_time


class BlameLimits(NamedTuple):
    """The limits of the number of reruns in one search for causes.

    Attributes:
        candidates: the most possible causes that are each taken out in a run of their own.
        set_runs: the most runs in the search for the set of causes.
    """

    candidates: int = MOST_CANDIDATES
    set_runs: int = SET_RUNS


LIMITS = BlameLimits()
TIMES = 20
"""A rerun may compute for this many times as long as the run itself; one that takes longer counts as endless."""


@dataclass
class RunBlame:
    """A run whose cost (time, bytes or accuracy) is to be explained.

    Attributes:
        path: the directory of the run.
        blame: the results so far.
        player: runs the scenario without some possible causes.
        likely: the possible causes that are each taken out in a run of their own, the likeliest first.
        limits: the most runs to make.
        play_s: the seconds that this computer took to repeat the run once.
    """

    path: Path
    blame: Blame
    player: CounterfactualPlayer
    likely: list[Candidate]
    limits: BlameLimits
    play_s: float = 0.0

    def play(self, show: Show = lambda what, done, of: None) -> Blame:
        """Run the scenario without all possible causes and without each likely one, then find a minimal set of causes.

        The set (`blame.found`) explains nine tenths of the gain without all possible causes. If KeyboardInterrupt is
        raised, the outcomes of finished runs stay in the journal.
        """
        fill(self.blame, self.player, self.likely, show)
        find_set(self.blame, self.player, show, self.limits.set_runs)
        return self.blame


def open_blame(
    path: Path,
    target: BlameTarget | None = None,
    *,
    messages: bool = False,
    but: Collection[str] = (),
    folder: Path | None = None,
    limits: BlameLimits = LIMITS,
) -> RunBlame:
    """Repeat the run at `path`, and find the possible causes of its cost (candidates).

    Args:
        path: the directory of the run.
        target: the quantity by which runs are compared; None: the first that the scenario reports.
        messages: whether each lost message is a candidate, in place of all losses of a link together.
        but: kinds of candidates to leave out.
        folder: the folder for outcomes of reruns; None: they are not stored.
        limits: the most runs to make.

    Raises:
        InputError: `but` has a name that is no kind of candidate. Or the run was made on the real clock, or a
            repetition differs from it, or it lacks the metric of `target`.
    """
    _check_kinds(but)
    run = open_run(path)
    scenario = blamable(run)
    chosen = target or default_target(scenario)
    executor = VariantExecutor()
    began_s = monotonic()
    base = checked(executor.run(scenario))
    play_s = monotonic() - began_s
    executor.allow(max(LIMIT_S, TIMES * play_s))
    if run.finished and run.result.get("event_log_hash") != base.event_log_hash:
        if counts_the_living(run):
            raise InputError(
                f"an older version made {path}, which divided `weight_sum` by the living nodes; run it again"
            )
        raise InputError(f"{path} goes another way when it is played again; `netdfl replay {path}` says where")
    outcome = outcome_of(base)
    if chosen.figure and chosen.figure not in outcome.figures:
        raise InputError(f"{path} has no figure {chosen.figure}; choose another --target: {TARGETS}")
    assert executor.blueprint is not None
    blueprint = executor.blueprint
    compute = compute_time(blueprint, RunDirectory(run.path, kept=False))
    clients = [node for node in blueprint.node_ids if node != blueprint.network.server]
    candidates = find_candidates(scenario, base.rows.messages, compute, clients, base.rows.waits, messages=messages)
    candidates = [each for each in candidates if each.kind not in but]
    variants = Counterfactuals(scenario, base.rows.messages)
    player = CounterfactualPlayer(scenario, executor, variants, PlayJournal(folder), hash_of_sources(scenario))
    likely = by_likelihood(candidates, base.rows)[: limits.candidates]
    return RunBlame(run.path, Blame(chosen, outcome, candidates), player, likely, limits, play_s)


def _check_kinds(but: Collection[str]) -> None:
    if unknown := sorted(set(but) - set(KINDS)):
        raise InputError(f"--but: {unknown[0]!r} is no kind of candidate; use {', '.join(KINDS)}")


def default_folder(path: Path) -> Path:
    """Return the default folder for outcomes of reruns of the run at `path`: `blamed/NAME`. Raises InputError.

    NAME is the scenario's name.
    """
    return Path("blamed") / load(open_run(path).path / "scenario.yaml").name


def blamable(run: Run) -> Scenario:
    """Return the scenario of `run`. Raises InputError if the run can't be repeated exactly."""
    scenario = load(run.path / "scenario.yaml")
    if not isinstance(scenario.world, SimulatedOptions):
        raise InputError(
            f"{run.path} can't be blamed: it ran in the world {scenario.world.kind}, where no other run has the same "
            f"luck; play its scenario first: netdfl run {run.path / 'scenario.yaml'} --on simulated"
        )
    scenario = replayable(run)
    if scenario.batching == "auto" or scenario.device.startswith("cuda"):
        raise InputError(f"{run.path} can't be blamed: it trained with {_not_exact(scenario)}, whose digits may differ")
    return _with_measured(scenario, run.path / COMPUTE_FILE)


def _not_exact(scenario: Scenario) -> str:
    return "task.batching: auto" if scenario.batching == "auto" else f"task.device: {scenario.device}"


def _with_measured(scenario: Scenario, file: Path) -> Scenario:
    """Return the scenario with the compute times that its run measured and wrote to `file`, if it measured any."""
    world = scenario.world
    assert isinstance(world, SimulatedOptions)
    compute: Part = world.compute
    if compute.kind != "measured" or compute.params.get("file") or not file.is_file():
        return scenario
    measured = compute.model_copy(update={"file": str(file)})
    return scenario.model_copy(update={"world": world.model_copy(update={"compute": measured})})
