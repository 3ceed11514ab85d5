"""A run of real processes that was killed as a whole goes on from its nodes' checkpoints."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.errors import InputError
from netdfl.record.directory import is_held
from netdfl.record.judge import ExitCode
from netdfl.record.run import open_run
from netdfl.running.run import resume
from netdfl.supervisor.supervisor import FleetOutcome, Supervisor
from tests.warm import warm_python

SCENARIO = """
schema: netdfl/1
name: resumed
nodes: 4
rounds: 30
task: {kind: consensus, dim: 20}
algorithm: sgp
topology: {kind: random_push, out_neighbors: 2}
wait: {deadline: none}
links: {default: {latency: 30ms}}
checkpoint: {every: 1}
evaluation: {every: 10}
"""


def killed(folder: Path, extra: str = "", *sets: str, after_round: int) -> Path:
    """A run whose supervisor was killed, and its nodes with it, once a node had begun `after_round`."""
    file, out = folder / "scenario.yaml", folder / "run"
    file.write_text(SCENARIO + extra)
    overrides = [f"--set={each}" for each in sets]
    command = [warm_python(), "-m", "netdfl.cli", "run", str(file), f"--out={out}", "--no-page", *overrides]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None and max(_rounds(out), default=0) < after_round:
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGKILL)
    assert not (out / "result.json").exists()
    for node in json.loads((out / "fleet.json").read_text())["nodes"]:
        _await_end(node["pid"])
    while is_held(out):  # by threads of the supervisor, which end after the one that its nodes die with
        time.sleep(0.02)
    return out


def _rounds(out: Path) -> list[int]:
    path = out / "fleet.json"
    return [node["round"] for node in json.loads(path.read_text())["nodes"]] if path.exists() else []


def _await_end(pid: int) -> None:
    """The kernel kills the nodes after the process that forked them, which is killed after the supervisor."""
    with suppress(FileNotFoundError, ProcessLookupError):  # it may end while it is looked at
        while "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]:
            time.sleep(0.02)


def data_rounds(out: Path, node: int, epoch: int) -> list[int]:
    sql = f"SELECT DISTINCT round FROM messages WHERE src = {node} AND epoch = {epoch} AND kind = 'data' ORDER BY 1"
    return [round for (round,) in open_run(out).rows(sql)]


def test_what_plain_push_sum_lost_is_named_and_nodes_that_crashed_for_good_stay_down(tmp_path: Path) -> None:
    out = killed(tmp_path, "", "events=[{at_round: 3, crash: 1}]", "failure_detector=oracle", after_round=8)
    finished = resume(out, page=False)
    result: dict[str, Any] = finished.result
    assert result["resumed"][0]["down"] == [1]
    assert data_rounds(out, 1, 1) == []
    assert data_rounds(out, 0, 1)[-1] == 29
    assert finished.exit_code == ExitCode.UNKNOWN
    (reason,) = result["reasons"]
    assert reason.startswith("mass error: the run was resumed")
    assert f"the sum of w at the end is {result['weight_sum']:.9g} of the number of nodes" in reason
    with pytest.raises(InputError, match=r"verdict unknown .*: every node has ended its last round, so that nothing"):
        resume(out, page=False)
    assert open_run(out).result == result, "nothing was started that changes its figures"


def test_one_that_is_interrupted_before_its_nodes_go_on_has_taken_the_time_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, run = killed(tmp_path, after_round=8), Supervisor.run

    async def at_once(supervisor: Supervisor) -> FleetOutcome:
        supervisor.interrupt()
        return await run(supervisor)

    monkeypatch.setattr(Supervisor, "run", at_once)
    result = resume(out).result
    assert result["reasons"] == ["the run was interrupted"]
    assert result["duration_s"] == result["time"]["total_s"] == result["resumed"][0]["at_s"] > 0
    assert (out / "report.html").is_file()


def test_without_checkpoints_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    out = killed(tmp_path, "", "checkpoint={}", after_round=3)
    with pytest.raises(InputError, match="holds no checkpoint"):
        resume(out)
