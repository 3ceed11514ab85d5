"""A scenario for the simulated world, small enough for a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from netdfl.running.judged import FinishedRun
from netdfl.scenario.load import loads
from netdfl.scenario.model.schema import Scenario

SMALL = """
schema: netdfl/1
name: small
seed: 3
nodes: 4
rounds: 4
world: {kind: simulated}
task: {kind: consensus, dim: 10}
algorithm: dpsgd
topology: {kind: ring}
wait: {for: all, deadline: none}
"""
Run = Callable[..., FinishedRun]


def small(*sets: str, **keys: Any) -> Scenario:
    """The small scenario, changed."""
    return loads(SMALL, [*sets, *(f"{key}={value}" for key, value in keys.items())])
