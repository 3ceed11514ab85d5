"""Every scenario of scenarios/faults/ in the simulated world: it passes, and its diagnosis is what its head says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import netdfl
from netdfl.fleet.run import Silent
from netdfl.fleet.simulated import simulate
from netdfl.record.judge import Findings, judge
from netdfl.record.run import RunDirectory
from netdfl.record.status import FleetStatus

FAULTS = sorted((Path(__file__).resolve().parents[2] / "scenarios" / "faults").glob("*.yaml"))


def announced(file: Path) -> str:
    found = re.search(r"^# Diagnosis: (\w+)", file.read_text(), re.MULTILINE)
    assert found is not None, f"{file.name} does not say what its diagnosis is"
    return found[1]


@pytest.mark.parametrize("file", FAULTS, ids=lambda file: file.stem)
def test_the_diagnosis_is_the_announced_one(file: Path, tmp_path: Path) -> None:
    scenario = netdfl.load(file, on="simulated")
    status = FleetStatus(scenario.name, "simulated", scenario.algorithm.kind, scenario.rounds)
    stalled = simulate(scenario, RunDirectory.create(tmp_path, "faults", 0), status, Silent()).stalled
    found = [*stalled["deadlocks"], *stalled["stalls"]]
    causes = {finding["cause"] for finding in found if not finding["over"]} or {f["cause"] for f in found}
    assert (causes or {"nothing"}) == {announced(file)}, [finding["text"] for finding in found]
    open_stalls = [finding["text"] for finding in stalled["stalls"] if not finding["over"]]
    deadlocks = [finding["text"] for finding in stalled["deadlocks"]]
    verdict = judge(Findings(deadlocks=deadlocks, open_stalls=open_stalls), scenario.expect.entries())
    assert verdict.verdict == "pass", verdict.reasons


def test_there_is_one_for_each_cause() -> None:
    causes = {announced(file) for file in FAULTS}
    assert causes >= {"deadlock", "lost_message", "unreachable", "straggler", "livelock", "flow_control", "nothing"}
