"""The same from Python as from the command line, in a notebook's running loop too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import netdfl
from netdfl.core.errors import MachineError
from netdfl.record.judge import WELL

TINY = """
schema: netdfl/1
name: tiny
nodes: 3
rounds: 2
task: {kind: consensus, dim: 4, init: integers}
algorithm: dpsgd
topology: {kind: ring}
"""


def test_a_run_from_python_gives_its_result_and_its_tables(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    finished = netdfl.run(netdfl.load(tmp_path / "tiny.yaml"), out=tmp_path / "run")
    assert finished.exit_code == 0
    messages = finished.result["messages"]
    assert (messages["sent"], messages["delivered"]) == (12, 12)
    assert netdfl.open_run(finished.path).rows("SELECT count(*) FROM messages") == [(12,)]


@pytest.mark.parametrize("world", ["processes", "simulated"])
async def test_a_run_inside_a_running_loop_works_as_in_a_notebook(tmp_path: Path, world: str) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    finished = netdfl.run(netdfl.load(tmp_path / "tiny.yaml", ["rounds=1"], on=world), out=tmp_path / "run", page=False)
    assert asyncio.get_running_loop().is_running()
    assert finished.result["verdict"] in WELL


@pytest.mark.parametrize("world", ["processes", "simulated"])
def test_a_run_that_is_refused_leaves_nothing_behind(tmp_path: Path, world: str) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    before = netdfl.run(netdfl.load(tmp_path / "tiny.yaml", on="simulated"), root=tmp_path / "runs", page=False).path
    images = ["task={dataset: digits, model: {name: mlp, hidden: [4]}, device: 'cuda:99'}"]
    refused = netdfl.load(tmp_path / "tiny.yaml", images, on=world)
    with pytest.raises(MachineError, match="cuda:99"):
        netdfl.run(refused, root=tmp_path / "runs")
    with pytest.raises(MachineError, match="cuda:99"):
        netdfl.run(refused, out=tmp_path / "out")
    assert [path.name for path in (tmp_path / "runs/tiny").iterdir() if not path.is_symlink()] == [before.name]
    assert (tmp_path / "runs/tiny/latest").resolve() == before
    assert list((tmp_path / "out").iterdir()) == []


def test_a_message_larger_than_the_scenario_allows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    sets = ["transport={max_message: 50B}", "wait.deadline=300ms", "expect={stall: any, died: any}"]
    result = netdfl.run(netdfl.load(tmp_path / "tiny.yaml", sets), out=tmp_path / "run", page=False).result
    assert result["messages"]["delivered"] == 0
