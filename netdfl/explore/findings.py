"""From a finding of an exploration to the scenario file that shows it."""

from __future__ import annotations

from netdfl.explore.explore import Exploration, Explored, Found
from netdfl.explore.shrink import MOST_RUNS, Shrinker
from netdfl.explore.trial import variant
from netdfl.explore.written import write_finding


def shrink_found(exploration: Exploration, explored: Explored, found: Found, most_runs: int = MOST_RUNS) -> str:
    """The finding as the text of a scenario, as small as `most_runs` more runs make it. Raises InputError."""
    shrinker = Shrinker(exploration.predicates, exploration.executor, most_runs)
    shown = variant(exploration.scenario, found.trial.events, found.trial.luck)
    shrunk = shrinker.shrink(shown, found.cause.key)
    how = f"Found by `netdfl explore`, seed {exploration.seed}, run {found.trial.number}"
    return write_finding(shrunk, f"{how}: {explored.rate(found)} of the runs that were drawn by themselves.")
