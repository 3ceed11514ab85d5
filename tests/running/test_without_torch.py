"""Where nobody trains and no part asks for torch, it is never imported; and nothing is otherwise than with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netdfl
from netdfl.compression.vector import Vector, of_array, to_array, vector, weighted_sum
from netdfl.host.blueprint import Blueprint, make_algorithm
from netdfl.host.models import read_snapshot, write_snapshot
from netdfl.host.task_setup import is_plain
from netdfl.node.checkpoint import load_state, save_state
from netdfl.scenario.load import loads

UNDIRECTED = ("dpsgd", "lian_dpsgd", "dfedavg", "dfedavgm", "dfedsam", "dfedsam_mgs", "ad_psgd")
DIRECTED = ("sgp", "osgp", "dfedsgpm", "dfedsgpsm", "overlap_sgp", "asyng")
PLAIN = UNDIRECTED + DIRECTED
SAMPLED = ("dfedavgm", "dfedsam_mgs", "ad_psgd", "dfedsgpsm", "overlap_sgp")
"""Of each loop and each kind of step one."""
LOOPS = ("ad_psgd", "overlap_sgp")
PAGED = ("dpsgd", "sgp")
MESSAGES = "SELECT src, dst, kind, round, step, nbytes, fate FROM messages ORDER BY ALL"
NUMBERS = "SELECT node, round, name, value FROM metrics WHERE name <> 'compute_s' ORDER BY node, round, name"
BLOCKED = f"""
import sys
sys.modules["torch"] = None
import json, netdfl
for name, scenario in json.loads(sys.stdin.read()).items():
    print(name, netdfl.run(scenario, out=f"{{sys.argv[1]}}/{{name}}", page=name in {PAGED}).exit_code)
"""


def scenario(name: str, **more: Any) -> dict[str, Any]:
    """Six nodes over links that lose and delay, one of which crashes and returns with what it kept."""
    graph = {"kind": "random_push", "out_neighbors": 2} if name in DIRECTED else {"kind": "ring"}
    return {
        "schema": "netdfl/1",
        "name": name,
        "nodes": 6,
        "rounds": 8,
        "world": {"kind": "simulated", "compute": "20ms"},
        "task": {"kind": "consensus", "dim": 5},
        "topology": graph,
        "algorithm": {"name": name, "local_steps": 1, "clip_norm": 1.0},
        "wait": {"deadline": "2s"},
        "links": {"default": {"loss": "5%", "latency": "20ms"}},
        "events": [{"at": "100ms", "crash": 2, "restart_after": "100ms"}],
    } | more


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLED else [pytest.mark.soak]) for name in PLAIN]
)
def test_a_fleet_does_the_same_with_torch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = netdfl.run(scenario(name), out=tmp_path / "without", page=False)
    assert Blueprint.of(netdfl.load(without.path / "scenario.yaml")).plain
    monkeypatch.setattr("netdfl.host.task_setup.needs_torch", lambda algorithm: True)
    with_it = netdfl.run(scenario(name), out=tmp_path / "with", page=False)
    assert without.run.rows(MESSAGES) == with_it.run.rows(MESSAGES)
    ours, theirs = without.run.rows(NUMBERS), with_it.run.rows(NUMBERS)
    assert [row[:3] for row in ours] == [row[:3] for row in theirs]
    assert [row[3] for row in ours] == pytest.approx([row[3] for row in theirs], rel=1e-9, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("names", [pytest.param(PLAIN, marks=pytest.mark.soak, id="all"), (*PAGED, *LOOPS)])
def test_nothing_asks_for_torch(names: tuple[str, ...], tmp_path: Path) -> None:
    """Page, checkpoints and the judging of models included."""
    scenarios = {name: scenario(name, rounds=6) for name in names}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, tmp_path], input=json.dumps(scenarios), capture_output=True, text=True
    )
    assert done.stdout.split("\n")[:-1] == [f"{name} 0" for name in names], done.stderr[-2000:]
    assert len(list(tmp_path.glob("*/report.html"))) == 2


@pytest.mark.parametrize(
    "more",
    [
        {"algorithm": {"name": "choco_sgd"}},
        {"compression": {"kind": "top_k", "fraction": 0.5}},
        {"task": {"kind": "quadratic"}},
        {"algorithm": {"name": "dpsgd", "optimizer": {"name": "adam"}}},
    ],
)
def test_what_asks_for_torch_gets_it(more: dict[str, Any]) -> None:
    loaded = loads(json.dumps(scenario("dpsgd") | {"algorithm": {"name": "dpsgd"}} | more))
    assert not is_plain(loaded, make_algorithm(loaded))


@pytest.mark.parametrize("dim", [3, 2000])
def test_a_weighted_sum_is_added_up_in_its_order(dim: int) -> None:
    rng = np.random.default_rng(1)
    numbers, weights = rng.standard_normal((4, dim)), [0.1, 0.2, 0.3, 0.4]
    own, *others = (vector(each) for each in numbers)
    expected = numbers[0] * 0.1
    for each, weight in zip(numbers[1:], weights[1:], strict=True):
        expected = expected + each * weight
    assert np.array_equal(weighted_sum(own, 0.1, others, weights[1:]), expected)
    assert np.array_equal(own, numbers[0])


def test_a_vector_survives_the_wire_and_the_disk(tmp_path: Path) -> None:
    x = vector([1.0, 2.0, 3.0])
    assert np.array_equal(of_array(to_array(x)), x)
    write_snapshot(tmp_path / "x", x, 0.5)
    assert isinstance(read_snapshot(tmp_path / "x", 3, torch=False).x, Vector)
    assert read_snapshot(tmp_path / "x", 3).x.tolist() == [1.0, 2.0, 3.0]
    save_state((x, 7), tmp_path / "state")
    again, number = load_state(tmp_path / "state", (vector([0.0] * 3), 0))
    assert isinstance(again, Vector)
    assert (again.tolist(), number) == ([1.0, 2.0, 3.0], 7)
