"""Whether a run can be played again, and what to say where it can't."""

from __future__ import annotations

from netdfl.core.errors import InputError
from netdfl.record.run import Run
from netdfl.running.provenance import other_versions, what_changed
from netdfl.scenario.load import load
from netdfl.scenario.model.schema import Scenario
from netdfl.worlds.catalog import entry_of


def replayable(run: Run) -> Scenario:
    """The scenario of `run`, in which nothing has changed since.

    Raises:
        InputError: it ran in a real world, or its scenario or a part of it has changed.
    """
    if changed := what_changed(run):
        raise InputError(
            f"{run.path} can't be replayed, for it would be another run: {'; '.join(changed)}. "
            "Put back what it was made from, or run it anew"
        )
    scenario = load(run.path / "scenario.yaml")
    if not entry_of(scenario).repeatable:
        raise InputError(
            f"{run.path} can't be replayed: it ran in the world {scenario.world.kind}, which does not repeat itself; "
            "run its scenario with --on simulated, and replay that"
        )
    return scenario


def parted_words(run: Run, what: str) -> str:
    """Say that a replay of `run` does not go as the run did, from `what` on, and why that may be."""
    others = other_versions(run)
    why = "; ".join(others) if others else "a part of it that does not repeat itself (its task, its data, a rule)"
    return f"{run.path} can't be replayed, for it goes another way: {what}. The reason: {why}"
