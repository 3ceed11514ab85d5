"""A run that goes on in another terminal is read and ended from this one."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from netdfl.cli.attended import logs, stop
from netdfl.core.errors import InputError
from tests.warm import warm_python

SCENARIO = """
schema: netdfl/1
name: attended
nodes: 4
rounds: 1000000
task: {kind: consensus, dim: 4}
algorithm: "talking:mine"
topology: ring
evaluation: {every: 1000000}
"""
TALKING = """
from netdfl.extend import Memoryless, Update, gossip

print("its module is loaded")


class Talking(Memoryless):
    def train(self, state, y, received, weight, data, view):
        if view.round == 0:
            print("node", view.node, "trains")
        return state, Update(y, y)


def mine(exchange, /):
    print("it is made")
    return gossip(exchange, Talking())
"""


@pytest.mark.parametrize("world", ["simulated", "processes"])
def test_a_run_is_asked_to_end_and_ends_in_good_order(
    world: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "scenario.yaml", tmp_path / "run"
    file.write_text(SCENARIO)
    (tmp_path / "talking.py").write_text(TALKING)
    command = [warm_python(), "-m", "netdfl.cli", "run", str(file), f"--out={out}", f"--on={world}", "--no-page"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while '"round":1' not in _status(out) and process.poll() is None:
                time.sleep(0.05)
            logs(out, node=3 if world == "processes" else None)
            stop(out)
            said = capsys.readouterr()
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
    assert said.out.count("node 3 trains") == (world == "processes")
    assert ("nodes of a simulated run print where the run itself does" in said.err) == (world == "simulated")
    assert "attended: 4 nodes" in said.out
    assert (out / "result.json").exists()
    with pytest.raises(InputError, match="does not go on"):
        stop(out)
    with pytest.raises(InputError, match="is not a run"):
        stop(tmp_path / "nowhere")


def _status(out: Path) -> str:
    try:
        return (out / "fleet.json").read_text()
    except OSError:
        return ""
