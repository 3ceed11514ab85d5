"""The quickstart on a GPU: run with `pytest -m gpu` where there is one."""

from __future__ import annotations

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


def test_a_node_that_runs_out_of_memory_is_named(tmp_path: Path) -> None:
    scenario = netdfl.load(
        ROOT / "scenarios/quickstart.yaml",
        [
            "task.device=cuda",
            "nodes=2",
            "topology.kind=ring",
            "task.model.name=mlp",
            "task.model.hidden=[400000, 400000]",
        ],
    )
    result = netdfl.run(scenario, out=tmp_path / "run").result
    assert result["verdict"] == "fail"
    assert any("node" in reason and "memory" in reason for reason in result["reasons"])
