"""Whole numbers as targets: classes, or numbers where the loss says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import netdfl
from netdfl.running.prepare import check_ready

SCENARIO: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "prices",
    "nodes": 3,
    "rounds": 2,
    "world": "simulated",
    "task": {"model": {"name": "mlp", "hidden": [4]}, "batch_size": 8},
    "algorithm": {"name": "dfedavg", "lr": 0.001},
    "topology": "ring",
}
X = torch.rand(90, 2, generator=torch.Generator().manual_seed(0))
PRICES = (100 + 400 * X[:, 0]).long()


@pytest.mark.parametrize("loss", ["mse", "l1"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_model_of_netdfls_learns_them_as_numbers_by_a_loss_of_numbers(loss: str, sign: int, tmp_path: Path) -> None:
    task = SCENARIO["task"] | {"loss": loss}
    finished = netdfl.run(SCENARIO | {"task": task}, data=(X, sign * PRICES), out=tmp_path / "run", page=False)
    assert finished.model()(X).shape == (90, 1)
    assert finished.result["metrics"]["test_mae"]["last"] < 500


@pytest.mark.parametrize(("targets", "noted"), [(PRICES, 1), (PRICES.float(), 0), (PRICES // 100, 0)])
def test_a_note_says_where_they_are_hardly_classes(targets: torch.Tensor, noted: int) -> None:
    notes = [note for note in check_ready(netdfl.load(SCENARIO, data=(X, targets))) if "different values" in note]
    assert len(notes) == noted
    for note in notes:
        assert "each of them a class: if they are numbers, set task.loss: mse" in note


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (PRICES.float(), ""),
        ((PRICES // 100).float(), "are 4 whole numbers of torch.float32, learned as numbers: if they are classes"),
        ((PRICES // 100).float() - 9, ""),
        (PRICES * 0 + 3, "training targets are 3: there is but one class to learn"),
        (PRICES // 200 * 5000, "and the largest is 10000: number them from 0, as a model has an output for each"),
        (PRICES // 200 * 5, ""),
    ],
)
def test_a_note_says_where_classes_and_numbers_may_be_taken_for_each_other(targets: torch.Tensor, said: str) -> None:
    told = [note for note in check_ready(netdfl.load(SCENARIO, data=(X, targets))) if "training targets" in note]
    assert len(told) == bool(said)
    assert said in "".join(told)
