"""The namespaces world as a whole: runs, refusals, and that nothing is left."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import netdfl
from netdfl.core.errors import InputError
from tests.warm import warm_python

FLEET = """
schema: netdfl/1
name: small
nodes: 4
rounds: {rounds}
task: {{kind: quadratic, dim: 20, heterogeneity: 1.0}}
algorithm: {{name: lian_dpsgd, lr: 0.1, lr_decay: 0.95}}
topology: full
wait: {{deadline: 30s}}
evaluation: {{every: 20}}
links: {{default: {links}}}
"""
SLOW = "{latency: 2ms, rate: 10Mbit, loss: 2%}"
PR_CAPBSET_DROP, CAP_SYS_ADMIN = 24, 21


def written(tmp_path: Path, links: str = SLOW, rounds: int = 30) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(FLEET.format(links=links, rounds=rounds))
    return file


def start(
    tmp_path: Path, *arguments: str, rounds: int = 30, python: str = sys.executable, **more: object
) -> subprocess.Popen:
    run = ["run", str(written(tmp_path, rounds=rounds)), "--on=namespaces", "--no-page", f"--out={tmp_path / 'run'}"]
    command = [python, "-m", "netdfl.cli", *run, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)  # type: ignore[call-overload]


def result(tmp_path: Path) -> dict:
    return json.loads((tmp_path / "run" / "result.json").read_text())


def test_a_fleet_learns_the_same_as_in_processes_over_lossy_packets(tmp_path: Path) -> None:
    """With TLS here, without there."""
    run = start(tmp_path, "--set", "world.tls=true", python=warm_python())
    said, _ = run.communicate(timeout=120)
    found = result(tmp_path)
    assert (run.returncode, found["world"]) == (0, "namespaces"), said
    packets = found["links"]["packets"]
    assert (found["links"]["layer"], found["links"]["engine"]) == ("packet", "tun")
    assert packets["dropped"]["loss"] > 0
    assert packets["delivered"] + packets["dropped"]["loss"] + packets["under_way"] == packets["sent"]
    assert found["messages"]["delivered"] == found["messages"]["sent"]
    assert "links lose and delay single packets" in said
    plain = netdfl.load(written(tmp_path, links="{}"), on="processes")
    expected = netdfl.run(plain, out=tmp_path / "processes", page=False).result
    assert expected["links"] == {"layer": "message"}
    assert found["consensus_distance"] == pytest.approx(expected["consensus_distance"], rel=1e-12)


def test_more_than_the_forwarder_carries_is_refused(tmp_path: Path) -> None:
    fast = netdfl.load(written(tmp_path, links="{rate: 1Gbit}"), ["world.engine=tun"], on="namespaces")
    with pytest.raises(InputError, match="12000 Mbit/s together"):
        netdfl.run(fast, out=tmp_path / "run", page=False)


def test_without_the_privilege_one_line_says_what_to_do(tmp_path: Path) -> None:
    def drop() -> None:
        assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0) == 0

    run = start(tmp_path, "--set=world.loss_layer=packet", preexec_fn=drop)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 2
    assert said.strip().count("\n") == 0
    assert "CAP_SYS_ADMIN" in said
    assert "--on processes" in said


def test_a_dead_forwarder_breaks_the_run(tmp_path: Path) -> None:
    run = start(tmp_path, rounds=100_000)
    while not any(node["round"] > 2 for node in _nodes(tmp_path)):
        assert run.poll() is None, run.communicate()
        time.sleep(0.05)
    os.kill(_child(run.pid, "netdfl.packets.process"), signal.SIGKILL)
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 4
    assert "carries the packets ended" in said


def _nodes(tmp_path: Path) -> list[dict]:
    path = tmp_path / "run" / "fleet.json"
    return json.loads(path.read_text())["nodes"] if path.exists() else []


def _child(parent: int, name: str) -> int:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_text()
            if name in words and int((path / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                return int(path.name)
        except OSError:
            continue
    raise LookupError(name)
