"""The widest type of a model, and which buffers are running means."""

from __future__ import annotations

import math

import pytest
import torch

from netdfl.training.flat import _widest
from netdfl.training.models.buffers import _is_mean


@pytest.mark.parametrize(
    ("once", "twice", "mean"),
    [
        (0.9, 1.8, True),
        (1.0, 2.0, True),
        (1.01, 2.02, False),
        (0.0, 0.0, False),
        (-0.5, -1.0, False),
        (0.5, 1.2, False),
    ],
)
def test_a_mean_moves_by_the_same_share_from_wherever_it_is(once: float, twice: float, mean: bool) -> None:
    begun = torch.tensor([0.25, 4.0])
    assert _is_mean(begun, begun + once, begun + twice) is mean
    assert not _is_mean(begun * math.inf, begun, begun)
    assert not _is_mean(begun, begun + torch.tensor([0.9, 0.0]), begun + torch.tensor([1.8, 0.0])), "each coordinate"


@pytest.mark.parametrize(
    ("kinds", "widest"),
    [
        (["float32"], "float32"),
        (["float64", "float64"], "float64"),
        (["float16"], "float32"),
        (["bfloat16", "bfloat16"], "float32"),
        (["float32", "float64"], "float64"),
        (["float16", "float64"], "float64"),
        ([], "float32"),
    ],
)
def test_a_vector_has_the_widest_type_and_float32_at_least(kinds: list[str], widest: str) -> None:
    assert _widest(getattr(torch, kind) for kind in kinds) is getattr(torch, widest)
