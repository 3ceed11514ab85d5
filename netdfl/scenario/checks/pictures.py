"""An algorithm that augments pictures is given pictures: said when a scenario is loaded."""

from __future__ import annotations

from collections.abc import Iterator

from netdfl.core.errors import Problem
from netdfl.scenario.loading.document import Document
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Train


def task_has_pictures(scenario: Scenario, document: Document) -> Iterator[Problem]:
    """A toy problem's examples are vectors."""
    if _augments(scenario) and not isinstance(scenario.task, Train):
        yield _no_pictures(scenario, document, f"the examples of task {scenario.task.kind} are vectors")


def data_are_pictures(scenario: Scenario, document: Document, shape: tuple[int, ...]) -> Iterator[Problem]:
    """Inputs of `shape` have channels, rows and columns."""
    if _augments(scenario) and len(shape) != 3:
        yield _no_pictures(scenario, document, f"an input of the dataset has the shape {shape}")


def _augments(scenario: Scenario) -> bool:
    algorithm = scenario.algorithm
    return algorithm.traits.augments and bool(algorithm.params.get("augment"))


def _no_pictures(scenario: Scenario, document: Document, given: str) -> Problem:
    what = f"{scenario.algorithm.kind} would augment pictures, and {given}"
    return document.problem(("algorithm", "augment"), what, "expected (channels, height, width)", "set augment: []")
