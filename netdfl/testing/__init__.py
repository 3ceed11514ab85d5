"""Conformance suites and toy problems for authors of own parts (algorithms, compressors, tasks, transports, worlds).

Also one-line tests that search for failing runs of a scenario, or prove that there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from netdfl.core.types import Json

if TYPE_CHECKING:
    from netdfl.explore.explore import Exploration, ExplorationResult
    from netdfl.prove.proof import ProofAnswer
    from netdfl.scenario.model.schema import Scenario

__all__ = ["explore", "prove"]


def explore(
    scenario: Scenario | str | Path | Json, *, runs: int = 200, seed: int = 0, jobs: int = 1
) -> ExplorationResult:
    """Assert that none of `runs` simulated runs of `scenario`, with faults drawn by its block `explore`, fails.

    The same seed leads to the same search. Raises AssertionError with every cause of failure, and the smallest scenario
    that fails by the most frequent one; InputError for a scenario that can't be explored.
    """
    from netdfl.explore.explore import Budget, Exploration
    from netdfl.scenario.load import load

    exploration = Exploration(load(scenario), seed=seed, jobs=jobs)
    explored = exploration.run(Budget(runs=runs))
    if explored.why_stopped == "interrupted":
        raise KeyboardInterrupt
    if explored.findings:
        raise AssertionError(_told(exploration, explored))
    return explored


def prove(
    scenario: Scenario | str | Path | Json,
    faults: str = "loss: 1",
    *,
    messages: str = "",
    properties: Sequence[str] = (),
    consensus: float | None = None,
    jobs: int = 1,
) -> ProofAnswer:
    """Assert that `scenario` survives every schedule of faults within a bound, such as `loss: 2, crash: 1`.

    A schedule says which faults happen when. By default no schedule may make the fleet stall, leave a node unfinished,
    diverge or lose push-sum weight; `properties` names others, and `consensus` is a bound below which the consensus
    distance must end. `messages` are the kinds of messages that faults concern, such as `data`. Raises AssertionError
    with the smallest schedule that breaks a property, as a scenario; InputError where nothing can be proven.
    """
    from netdfl.prove.bound import read_bound
    from netdfl.prove.counterexample import write_counterexample
    from netdfl.prove.proof import ScenarioProof
    from netdfl.prove.properties import choose_properties
    from netdfl.scenario.load import load

    loaded = load(scenario)
    chosen = choose_properties(loaded, properties, consensus=consensus)
    answer = ScenarioProof(loaded, read_bound(faults, messages), chosen, jobs=jobs).run()
    if answer.progress.stopped == "interrupted":
        raise KeyboardInterrupt
    if answer.progress.broken is not None:
        shown = write_counterexample(answer)
        raise AssertionError(f"{shown.sentence}\n{answer}\n\nThe smallest schedule, as a scenario:\n\n{shown.text}")
    assert answer.survives, str(answer)
    return answer


def _told(exploration: Exploration, explored: ExplorationResult) -> str:
    """Return a text with all causes of failure and their counts, and a small scenario that fails by the first cause."""
    from netdfl.core.errors import InputError
    from netdfl.explore.explore import by_rate
    from netdfl.explore.findings import FindingScenarios

    found = by_rate(explored)
    lines = [f"{len(found)} {'causes' if len(found) > 1 else 'cause'} of failure in {explored.runs} runs:"]
    for each in found:
        lines.append(f"- {len(each.numbers)} runs: {each.cause.text}")
        if each.broke:
            lines.append(each.broke.rstrip())
    try:
        shown = FindingScenarios(exploration, explored).shrunk(found[0]).text
    except InputError as error:
        shown = str(error)
    return "\n".join([*lines, "", "The first, as `netdfl run` shows it:", "", shown])
