"""A run directory that refuses what is written to it: the reason for the run's end is what is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from netdfl.core.errors import RunError
from netdfl.record.directory import RunDirectory
from netdfl.record.judge import ExitCode
from netdfl.record.status import FleetStatus
from netdfl.running.display import SilentDisplay
from netdfl.running.run import run
from netdfl.scenario.load import loads


def test_what_the_verdict_was_and_why_is_told_where_the_result_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = loads(
        json.dumps(
            {
                "schema": "netdfl/1",
                "name": "refused",
                "nodes": 3,
                "rounds": 2,
                "world": {"kind": "simulated"},
                "task": {"kind": "consensus", "dim": 2},
                "algorithm": "dpsgd",
                "topology": "ring",
                "expect": {"consensus_distance": {"at_least": 9}},
            }
        )
    )
    write = RunDirectory.write

    def only_before(self: RunDirectory, name: str, text: str) -> Path:
        if name == "result.json":
            raise RunError("result.json can't be written")
        return write(self, name, text)

    monkeypatch.setattr(RunDirectory, "write", only_before)
    with pytest.raises(RunError, match="the verdict was fail: consensus_distance was expected to be at least 9"):
        run(scenario, out=tmp_path / "run", page=False)


class Meddler(SilentDisplay):
    """Does something to a run directory once the fleet runs."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        self.meddle: Callable[[], object] | None = meddle

    def update(self, status: FleetStatus) -> None:
        if status.elapsed_s and self.meddle is not None:
            self.meddle()
            self.meddle = None


LONG = """
schema: netdfl/1
name: long
nodes: 3
rounds: 100000
world: {kind: simulated, compute: 1s}
task: consensus
algorithm: dpsgd
topology: ring
"""


def test_a_run_directory_that_is_moved_meanwhile_gets_its_verdict_where_it_is(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    finished = run(loads(LONG), out=before, view=nullcontext(Meddler(lambda: before.rename(after))))
    assert finished.exit_code is ExitCode.BROKE
    assert finished.path == after
    assert "before/fleet.json can't be written" in json.loads((after / "result.json").read_text())["reasons"][0]


def test_a_run_directory_that_is_removed_meanwhile_is_told(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(RunError, match="was removed while the run went on: nothing of the run is left"):
        run(loads(LONG), out=path, view=nullcontext(Meddler(lambda: shutil.rmtree(path))))
