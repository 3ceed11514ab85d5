"""An algorithm that augments pictures is given pictures: said when a scenario is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from netdfl.scenario.checks.finding import Finding
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Training


def task_has_pictures(scenario: Scenario) -> Iterator[Finding]:
    """A toy problem's examples are vectors."""
    if _augments(scenario) and not isinstance(scenario.task, Training):
        yield _no_pictures(scenario, f"the examples of task {scenario.task.kind} are vectors")


def data_are_pictures(scenario: Scenario, shape: tuple[int, ...]) -> Iterator[Finding]:
    """Inputs of `shape` have channels, rows and columns."""
    if _augments(scenario) and len(shape) != 3:
        yield _no_pictures(scenario, f"an input of the dataset has the shape {shape}")


def _augments(scenario: Scenario) -> bool:
    algorithm = scenario.algorithm
    return algorithm.traits.augments and bool(algorithm.params.get("augment"))


def _no_pictures(scenario: Scenario, given: str) -> Finding:
    what = f"{scenario.algorithm.kind} would augment pictures, and {given}"
    return Finding(("algorithm", "augment"), what, "set augment: []", "expected (channels, height, width)")
