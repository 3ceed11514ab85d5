"""DFedSGPSM with scaled steps moves z by lr however small w is, and is the printed method where w is 1."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from netdfl.study.scaled_steps import ScaledByWeight
from netdfl.training.sgd import LocalSgd

VIEW: Any = SimpleNamespace(round=0, node=0)


class Slope:
    """Three minibatches of a loss with gradient 2 z."""

    def steps(self, *, epochs: int | None, steps: int | None) -> Iterator[Any]:
        yield from [lambda z: 2 * z] * 3


def trained(solver: Any, weight: float) -> Tensor:
    """Where z ends that begins at (1, -2)."""
    z: Tensor = torch.tensor([1.0, -2.0], dtype=torch.float64)
    state = solver.init(z * weight, VIEW)
    _, update = solver.train(state, z * weight, (), weight, Slope(), VIEW)
    assert torch.equal(update.before, z * weight)
    found: Tensor = update.x / weight
    return found


@pytest.mark.parametrize("weight", [0.125, 1.0, 4.0])
def test_z_ends_where_it_does_at_weight_one(weight: float) -> None:
    printed = LocalSgd(lr=0.1, momentum=0.9, rho=0.1, steps=3)
    assert torch.equal(trained(ScaledByWeight(printed), weight), trained(printed, 1.0))
    assert torch.equal(trained(printed, weight), trained(printed, 1.0)) == (weight == 1.0)
