"""The quickstart on a GPU: run with `pytest -m gpu` where there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import netdfl

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU that PyTorch can use"),
]


def accuracy(device: str, out: Path) -> float:
    scenario = netdfl.load(ROOT / "scenarios/quickstart.yaml", [f"task.device={device}"])
    finished = netdfl.run(scenario, out=out)
    assert finished.exit_code == 0, finished.result["reasons"]
    return float(finished.result["test_accuracy"]["average_model"]["last"])


def test_sixteen_nodes_on_one_gpu_are_within_a_point_of_the_cpu(tmp_path: Path) -> None:
    assert abs(accuracy("cuda", tmp_path / "gpu") - accuracy("cpu", tmp_path / "cpu")) <= 0.01


BY_KIND = {
    "a server that makes examples": [
        "algorithm={name: fedsynsam, lr: 0.1, local_epochs: 1, rho: 0.05}",
        "topology=star",
    ],
    "running statistics": ["task.model={name: resnet18, width: 4}", "algorithm.local_epochs=1"],
    "compressed models": ["algorithm={name: choco_sgd, lr: 0.1}", "compression={kind: qsgd, bits: 8}"],
}


@pytest.mark.parametrize("world", ["simulated", "processes"])
@pytest.mark.parametrize("kind", BY_KIND)
def test_a_model_is_evaluated_on_a_gpu_as_on_the_cpu(tmp_path: Path, kind: str, world: str) -> None:
    changes = [f"world={world}", "rounds=2", "nodes=4", "topology=ring", "expect={}", *BY_KIND[kind]]
    keeping = ["task.device=cuda", "evaluation.keep_models=true"]
    finished = netdfl.run(netdfl.load(ROOT / "scenarios/quickstart.yaml", [*changes, *keeping]), out=tmp_path / "run")
    assert finished.exit_code == 0, finished.result["reasons"]
    there = finished.result["test_accuracy"]["average_model"]["last"]
    module = finished.run.model()
    assert all(tensor.device.type == "cpu" for tensor in module.state_dict().values())
    test = finished.run.problem.test
    with torch.no_grad():
        here = float((module(test.x).argmax(1) == test.y).float().mean())
    assert abs(there - here) <= 0.01
    assert abs(float(finished.run.test_figures()["test_accuracy"]) - here) <= 0.01


FILLS = """
import torch
free, whole = torch.cuda.mem_get_info()
held = torch.empty(free - (3 << 30), dtype=torch.uint8, device="cuda")
print("full", flush=True)
input()
"""
"""A program that leaves 3 GiB of the GPU's memory to others until its input ends."""


def test_a_node_that_runs_out_of_memory_is_named(tmp_path: Path) -> None:
    large = ["nodes=2", "topology.kind=ring", "task.model.name=mlp", "task.model.hidden=[16384, 16384]"]
    scenario = netdfl.load(ROOT / "scenarios/quickstart.yaml", ["task.device=cuda", *large])
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", FILLS], stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "full\n"
        result = netdfl.run(scenario, out=tmp_path / "run").result
        other.communicate("")
    assert result["verdict"] in ("fail", "unknown"), result["reasons"]
    assert any("node" in reason and "out of memory" in reason for reason in result["reasons"]), result["reasons"]
