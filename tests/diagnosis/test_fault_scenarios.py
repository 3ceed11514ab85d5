"""Every scenario of scenarios/faults/ that announces a diagnosis gets it in the simulated world."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import netdfl
from netdfl.diagnosis.finding import Cause
from netdfl.record.directory import RunDirectory
from netdfl.record.judge import WELL, Evidence, judge
from netdfl.running.supervise import supervise

FOLDER = Path(__file__).resolve().parents[2] / "scenarios" / "faults"
ANNOUNCED = {
    file.stem: found[1]
    for file in sorted(FOLDER.glob("*.yaml"))
    if (found := re.search(r"^# Diagnosis: (\w+)", file.read_text(), re.MULTILINE))
}


@pytest.mark.parametrize(("name", "cause"), ANNOUNCED.items(), ids=ANNOUNCED)
def test_the_diagnosis_is_the_announced_one(name: str, cause: str, tmp_path: Path) -> None:
    scenario = netdfl.load(FOLDER / f"{name}.yaml", on="simulated")
    stalled = supervise(scenario, RunDirectory.create(tmp_path, "faults", 0)).stalled
    found = [*stalled["deadlocks"], *stalled["stalls"]]
    causes = {finding["cause"] for finding in found if not finding["over"]} or {f["cause"] for f in found}
    assert (causes or {"nothing"}) == {cause}, [finding["text"] for finding in found]
    open_stalls = [finding["text"] for finding in stalled["stalls"] if not finding["over"]]
    deadlocks = [finding["text"] for finding in stalled["deadlocks"]]
    expect = {key: value for key, value in scenario.expect.entries().items() if key in ("deadlock", "stall")}
    verdict = judge(Evidence(deadlocks=deadlocks, open_stalls=open_stalls), expect)
    assert verdict.verdict in WELL, verdict.reasons


def test_there_is_one_for_each_cause() -> None:
    assert set(ANNOUNCED.values()) == {cause.value for cause in Cause} - {Cause.BLOCKED_LOOP.value} | {"nothing"}
