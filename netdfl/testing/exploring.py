"""Exploration as an assertion: what `netdfl.testing.explore` does."""

from __future__ import annotations

from pathlib import Path

from netdfl.core.errors import InputError
from netdfl.core.types import Json
from netdfl.explore.explore import Budget, Exploration, Explored, by_rate
from netdfl.explore.findings import Findings
from netdfl.scenario.load import load
from netdfl.scenario.model.schema import Scenario


def find_nothing(scenario: Scenario | str | Path | Json, *, runs: int, seed: int, jobs: int) -> Explored:
    """See `netdfl.testing.explore`."""
    exploration = Exploration(load(scenario), seed=seed, jobs=jobs)
    explored = exploration.run(Budget(runs=runs))
    if explored.why_stopped == "interrupted":
        raise KeyboardInterrupt
    if explored.findings:
        raise AssertionError(_told(exploration, explored))
    return explored


def _told(exploration: Exploration, explored: Explored) -> str:
    """Every cause with how often it was met, and the scenario of the first."""
    found = by_rate(explored)
    lines = [f"{len(found)} {'causes' if len(found) > 1 else 'cause'} of failure in {explored.runs} runs:"]
    for each in found:
        lines.append(f"- {len(each.numbers)} runs: {each.cause.text}")
        if each.broke:
            lines.append(each.broke.rstrip())
    try:
        shown = Findings(exploration, explored).shrunk(found[0])
    except InputError as error:
        shown = str(error)
    return "\n".join([*lines, "", "The first, as `netdfl run` shows it:", "", shown])
