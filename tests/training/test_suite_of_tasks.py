"""The suite of tasks holds a right one, and finds what is wrong with others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from netdfl.testing.tasks import check_task


class Line:
    def model(self) -> nn.Module:
        return nn.Linear(2, 1)

    def data(self) -> Any:
        x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
        return x, x.sum(1, keepdim=True)

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        return (outputs - targets).square().mean()  # type: ignore[no-any-return]

    def metrics(self, outputs: Any, targets: Any) -> dict[str, float]:
        return {"off": float((outputs - targets).abs().max())}


class Otherwise(Line):
    def data(self) -> Any:
        return torch.randn(20, 2), torch.randn(20, 1)


class Upward(Line):
    def loss(self, outputs: Any, targets: Any) -> Tensor:
        return torch.zeros(1, requires_grad=True).sum()


class Unnamed(Line):
    def metrics(self, outputs: Any, targets: Any) -> dict[str, float]:
        return {"how far": 1.0}


def test_a_right_task_passes() -> None:
    check_task(Line)


@pytest.mark.parametrize(
    ("task", "said"),
    [(Otherwise, "read other data"), (Upward, "does not depend on any parameter"), (Unnamed, "plain words")],
)
def test_a_wrong_task_is_told_what_is_wrong(task: type[Line], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_task(task)
