"""Conformance suites and toy problems, shipped for those who write own parts; and a search for runs that fail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from netdfl.core.types import Json

if TYPE_CHECKING:
    from netdfl.explore.explore import Explored
    from netdfl.scenario.model.schema import Scenario

__all__ = ["explore"]


def explore(scenario: Scenario | str | Path | Json, *, runs: int = 200, seed: int = 0, jobs: int = 1) -> Explored:
    """Assert that no run of `scenario` fails, whatever is drawn of what its `explore` says: one line of a test.

    The same seed searches the same way. Raises AssertionError with each cause, and the first of them as the smallest
    scenario that shows it; InputError where the scenario can't be explored.
    """
    from netdfl.testing.exploring import find_nothing

    return find_nothing(scenario, runs=runs, seed=seed, jobs=jobs)
