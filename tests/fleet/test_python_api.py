"""The same from Python as from the command line, in a notebook's running loop too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import netdfl

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
    assert finished.result["messages"] == {"sent": 12, "delivered": 12, "dropped": {}}
    assert netdfl.open_run(finished.path).rows("SELECT count(*) FROM messages") == [(12,)]


async def test_a_run_inside_a_running_loop_works_as_in_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    finished = netdfl.run(netdfl.load(tmp_path / "tiny.yaml", ["rounds=1"]), out=tmp_path / "run")
    assert asyncio.get_running_loop().is_running()
    assert finished.result["verdict"] == "pass"
