"""The plan that a launcher hands to other processes: the resolved scenario, as text, and where to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from netdfl.fleet.build import Blueprint


class Plan(TypedDict):
    """What a process needs to know to become nodes of a run; JSON all through."""

    directory: str
    scenario_directory: str
    control: str
    token: str
    run_id: str
    scenario_hash: str


def read_blueprint(plan: dict[str, Any]) -> Blueprint:
    """Build the fleet's common parts from the scenario in the run directory. Raises InputError."""
    from netdfl.scenario.load import loads

    text = (Path(plan["directory"]) / "scenario.yaml").read_text(encoding="utf-8")
    return Blueprint.of(loads(text, file="scenario.yaml", directory=plan["scenario_directory"]))
