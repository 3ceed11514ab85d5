"""Fleets in containers beyond the suite of worlds: a testbed, a killed container, and what a killed run leaves."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from netdfl.record.run import open_run
from netdfl.running.run import run
from netdfl.scenario.load import load, loads
from netdfl.testing.world_ends import kept_models
from netdfl.worlds.containers.image import image_for
from netdfl.worlds.containers.world import SUPERVISOR, is_alive, this_supervisor
from tests import data_apart
from tests.hostile.client import STRANGERS
from tests.hostile.table import Placed
from tests.warm import warm_python

DIGITS = """
schema: netdfl/1
name: digits
nodes: 3
rounds: 15
world: {{kind: containers, image: {image}, memory: 2GiB, cpus: 2}}
task: {{dataset: {{name: digits, partition: {{kind: dirichlet, alpha: 0.5}}}}, model: mlp, batch_size: 32}}
algorithm: {{name: dfedavg, lr: 0.1, local_epochs: 2}}
topology: ring
evaluation: {{every: 5}}
"""
AGREEING = """
schema: netdfl/1
name: agreeing
nodes: 4
rounds: 15
world: {kind: containers, memory: 2GiB, cpus: 2}
task: {kind: consensus, dim: 10}
algorithm: dpsgd
topology: ring
wait: {deadline: none}
evaluation: {every: 5, keep_models: true}
"""
PACKETS = """
schema: netdfl/1
name: packets
nodes: 4
rounds: 1000000
world: {kind: containers}
task: {kind: consensus, dim: 20}
algorithm: dpsgd
topology: full
wait: {deadline: 1s}
failure_detector: oracle
evaluation: {every: 1000000}
links: {default: {latency: 20ms, rate: 10Mbit, loss: 2%}}
"""


def netdfl(*arguments: str | Path, python: str = sys.executable) -> subprocess.Popen[str]:
    command = [python, "-m", "netdfl.cli", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def done(*arguments: str | Path) -> str:
    run = netdfl(*arguments, python=warm_python())
    said, _ = run.communicate(timeout=500)
    assert run.returncode == 0, said
    return said


def docker(*arguments: str) -> list[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout.split()


def result(path: Path) -> dict[str, Any]:
    return json.loads((path / "result.json").read_text())  # type: ignore[no-any-return]


def left() -> list[str]:
    labelled = ["--quiet", "--filter", f"label={SUPERVISOR}"]
    return [*docker("ps", "--all", *labelled), *docker("network", "ls", *labelled)]


@pytest.fixture
def agreeing(tmp_path: Path) -> Path:
    file = tmp_path / "agreeing.yaml"
    file.write_text(AGREEING)
    return file


@pytest.fixture(scope="module")
def torch_image() -> str:
    return asyncio.run(image_for(loads(DIGITS.format(image="''"), file="digits.yaml"), print))


def by_compose(file: Path) -> Path:
    """Run a fleet by Compose alone; its collected run."""
    folder, out = file.parent / "testbed", file.parent / "collected"
    done("testbed", file, "--out", folder)
    compose = ["docker-compose", "-p", "netdfl-test-testbed"]
    try:
        subprocess.run([*compose, "up"], cwd=folder, check=True, timeout=500, stdout=subprocess.DEVNULL)
        done("collect", folder, "--out", out)
    finally:
        subprocess.run([*compose, "down"], cwd=folder, check=True)
    assert result(out)["links"] == {"layer": "packet", "engine": "bridge"}
    return out


def test_a_testbed_runs_by_compose_alone_and_is_collected(agreeing: Path) -> None:
    image = asyncio.run(image_for(load(agreeing), print))
    agreeing.write_text(AGREEING.replace("{kind: containers", f"{{kind: containers, image: {image}"))
    out = by_compose(agreeing)
    simulated = run(load(agreeing, on="simulated"), out=agreeing.parent / "simulated", page=False)
    data = "SELECT src, dst, round, step, nbytes FROM messages WHERE kind = 'data' ORDER BY ALL"
    assert open_run(out).rows(data) == simulated.run.rows(data)
    assert result(out)["consensus_distance"] == result(simulated.path)["consensus_distance"]
    assert kept_models(out) == kept_models(simulated.path)
    assert "<html" in (out / "report.html").read_text()[:200]


@pytest.mark.soak  # an image with PyTorch is larger than all else that CI makes
def test_a_testbed_trains_by_compose_alone(tmp_path: Path, torch_image: str) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(DIGITS.format(image=torch_image))
    done("run", file, "--on", "processes", "--out", tmp_path / "processes")
    last = [
        result(each)["test_accuracy"]["average_model"]["last"] for each in (by_compose(file), tmp_path / "processes")
    ]
    assert abs(last[0] - last[1]) <= 0.01


@pytest.mark.soak  # test_by_hand.py has nodes of which each finds its own file alone
def test_the_nodes_of_a_testbed_read_what_lies_in_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, folder = data_apart.scenario(3, world="containers"), tmp_path / "testbed"
    image = asyncio.run(image_for(load(scenario), print))  # it has what reads tables
    scenario["world"] = {"kind": "containers", "image": image}
    (tmp_path / "apart.json").write_text(json.dumps(scenario))
    done("testbed", tmp_path / "apart.json", "--out", folder)
    for node in range(3):
        data_apart.write_file(folder / "data", node)
    compose = ["docker-compose", "-p", "netdfl-test-data"]
    try:
        subprocess.run([*compose, "up"], cwd=folder, check=True, timeout=500, stdout=subprocess.DEVNULL)
        done("collect", folder, "--out", tmp_path / "collected")
    finally:
        subprocess.run([*compose, "down"], cwd=folder, check=True)
    monkeypatch.setenv("NETDFL_DATA", str(folder / "data"))
    simulated = run(load(scenario, on="simulated"), out=tmp_path / "simulated", page=False)
    assert data_apart.personal(open_run(tmp_path / "collected")) == data_apart.personal(simulated.run)


def wait_for_round(out: Path, node: int, round: int, run: subprocess.Popen[str], phase: str = "running") -> int:
    while run.poll() is None:
        path = out / "fleet.json"
        for each in json.loads(path.read_text())["nodes"] if path.exists() else []:
            if (each["node"], each["phase"]) == (node, phase) and each["round"] >= round:
                return int(each["round"])
        time.sleep(0.1)
    raise AssertionError(run.communicate()[0])


def test_a_killed_container_is_a_crash_of_its_node_and_a_restarted_one_rejoins(tmp_path: Path) -> None:
    file, out = tmp_path / "packets.yaml", tmp_path / "run"
    file.write_text(PACKETS)
    run = netdfl("run", file, "--out", out)
    wait_for_round(out, 2, 5, run)
    (container,) = docker("ps", "--quiet", "--filter", f"label={SUPERVISOR}", "--filter", "label=netdfl.node=2")
    docker("kill", container)
    killed_in = wait_for_round(out, 2, 0, run, phase="died")
    docker("start", container)
    wait_for_round(out, 2, killed_in + 5, run)
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=120)
    found = result(out)
    assert run.returncode == 130, said
    assert "Traceback" not in said
    assert (found["verdict"], found["reasons"][0]) == ("unknown", "the run was interrupted")
    assert [death["node"] for death in found["died"]] == [2]
    assert "SIGKILL" in found["died"][0]["reason"]
    assert f"node 2 died in round {killed_in}: SIGKILL" in said
    assert "node 2 is back" in said
    packets = found["links"]["packets"]
    assert (found["links"]["layer"], found["links"]["engine"]) == ("packet", "tun")
    assert packets["dropped"]["loss"] > 0
    assert left() == []


@pytest.mark.parametrize("there", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["agrees", "trains"])
def test_the_image_of_a_fleet_that_trains_nothing_has_no_torch(there: bool) -> None:
    text = DIGITS.format(image="''") if there else PACKETS
    image = asyncio.run(image_for(loads(text, file="scenario.yaml"), print))
    asked = "import importlib.util as u; print(u.find_spec('torch') is not None, u.find_spec('pytest') is not None)"
    assert docker("run", "--rm", "--entrypoint=python", image, "-c", asked) == [str(there), "False"]


def test_what_a_killed_supervisor_leaves_is_swept_by_the_next_run(agreeing: Path, tmp_path: Path) -> None:
    killed = netdfl("run", agreeing, "--set=rounds=100000", "--out", tmp_path / "killed")
    wait_for_round(tmp_path / "killed", 0, 1, killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert left() != []
    said = done("run", agreeing, "--set=rounds=1", "--out", tmp_path / "next")
    assert "removed what a killed run had left" in said
    found = result(tmp_path / "next")
    assert (found["world"], found["links"]) == ("containers", {"layer": "packet", "engine": "bridge"})
    assert left() == []


def test_only_dead_launchers_of_this_machine_are_swept() -> None:
    own = this_supervisor()
    host, pid, _ = own.rsplit("/", 2)
    assert is_alive(own)
    assert is_alive(f"elsewhere/{pid}/0@0")
    assert not is_alive(f"{host}/{pid}/0@0")


@pytest.mark.soak  # test_table.py has strangers in namespaces and on machines
@pytest.mark.parametrize("tls", [False, True], ids=["plain text", "TLS"])
def test_strangers_in_the_network_of_a_container_change_nothing_and_learn_nothing(tls: bool, tmp_path: Path) -> None:
    Placed("kind: containers", tls, beside=True).strangers(list(STRANGERS), "gossip", tmp_path / "run")
