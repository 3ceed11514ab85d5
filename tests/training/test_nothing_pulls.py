"""Where no gradient pulls, local steps lead nowhere: they are skipped, and give what they would have given."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from netdfl.compression.vector import vector
from netdfl.core.errors import NotFiniteError
from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.training.base import Received
from netdfl.training.sgd import LocalSgd, NoState
from netdfl.training.toy import Quadratic, still

VIEW = View(0, 3, 2, (1,), (1,), 0.5, {1: 0.5}, {1: 0.5})
START = [0.5, -3.0, 1e30]


def trained(sgd: LocalSgd, task: Quadratic, weight: float = 1.0) -> tuple[list[float], float]:
    y = task.initial()
    _, update = sgd.train(NoState(), y, Received(), weight, task.data(3), VIEW)
    assert update.before is y
    return [float(each) for each in update.x], task.last_loss


@pytest.mark.parametrize("numbers", [vector(START), torch.tensor(START, dtype=torch.float64)], ids=["vector", "tensor"])
@pytest.mark.parametrize("more", [{}, {"momentum": 0.9}, {"rho": 0.1}, {"clip_norm": 1.0}, {"weight_decay": 0.1}])
def test_steps_that_lead_nowhere_are_skipped(numbers: Any, more: dict[str, float], monkeypatch: Any) -> None:
    sgd = LocalSgd(lr=0.5, epochs=3, **more)
    found = trained(sgd, still(numbers, 0, Streams(0)), 0.5)
    again = still(numbers, 0, Streams(0))
    monkeypatch.setattr(type(again.data(3)), "rests", lambda *_: False)
    assert found == trained(sgd, again, 0.5)
    assert (found[0] == START) is ("weight_decay" not in more)


def test_numbers_that_are_not_finite_are_found_all_the_same() -> None:
    with pytest.raises(NotFiniteError, match="loss became nan"):
        trained(LocalSgd(lr=0.5, epochs=1), still(torch.tensor([0.0, torch.inf]), 0, Streams(0)))


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_what_pulls_moves(noise: float) -> None:
    ones = torch.ones(2, dtype=torch.float64)
    task = Quadratic(ones, 3 * ones, ones * (noise == 0), node=0, streams=Streams(0), noise=noise)
    moved, _ = trained(LocalSgd(lr=0.5, epochs=1), task)
    assert moved != [3.0, 3.0]
