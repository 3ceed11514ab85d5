"""Run every scenario of scenarios/smoke/, one of them by the command line, and read what it left.

`python -m tests.soak.another_machine` has all of them in processes and in containers.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import netdfl
from netdfl.core.fates import FateClass
from tests.warm import warm_python

ROOT = Path(__file__).resolve().parents[2]
SMOKE = sorted((ROOT / "scenarios" / "smoke").glob("*.yaml"))
IN_PROCESSES = {"consensus", "push_sum", "training"}
RUNS = [(file, "simulated") for file in SMOKE] + [(file, "processes") for file in SMOKE if file.stem in IN_PROCESSES]
BY_COMMAND = "consensus"


def netdfl_run(scenario: Path, world: str, out: Path) -> None:
    if scenario.stem != BY_COMMAND:
        netdfl.run(netdfl.load(scenario, on=world), out=out, page=False)
        return
    command = [warm_python(), "-m", "netdfl.cli", "run", str(scenario), "--on", world, "--out", str(out)]
    done = subprocess.run(command, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


RARELY = {"compressed_push_sum-simulated", "push_sum-processes"}
"""The golden event logs have the one, and the others of these run in both worlds."""


@pytest.mark.parametrize(
    ("file", "world"),
    [
        pytest.param(file, world, id=name, marks=[pytest.mark.soak] if name in RARELY else [])
        for file, world in RUNS
        for name in [f"{file.stem}-{world}"]
    ],
)
def test_smoke_scenario_passes(file: Path, world: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    netdfl_run(file, world, out)
    scenario = netdfl.load(file)
    result = json.loads((out / "result.json").read_text())
    assert (result["verdict"], result["reasons"]) == ("pass", [])
    assert (result["world"], result["scenario"], result["seed"]) == (world, scenario.name, scenario.seed)
    assert (result["algorithm"], result["nodes"]) == (scenario.algorithm.kind, scenario.nodes)
    assert result["rounds"] == scenario.rounds
    assert (result["died"], result["stalls"], result["deadlocks"]) == ([], [], [])
    assert ("event_log_hash" in result) == (world == "simulated")

    messages = result["messages"]
    assert messages["sent"] > 0
    assert messages["sent"] == sum(messages[name.value] for name in FateClass)
    assert result["bytes_sent"] > 0

    kept = netdfl.open_run(out)
    assert kept.query("SELECT count(*) FROM messages WHERE kind = 'data'").fetchall() == [(messages["sent"],)]
    drawn = ["report.html"] if file.stem == BY_COMMAND else []
    for name in ("scenario.yaml", "graph.json", *drawn):
        assert (out / name).stat().st_size > 0, name


def test_there_are_smoke_scenarios() -> None:
    assert len(SMOKE) >= 5
    assert BY_COMMAND in {file.stem for file in SMOKE}
