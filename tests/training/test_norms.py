"""Clipping and ascent go by a gradient's norm, which is finite where the gradient is, however large or small."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from netdfl.compression.vector import finite, vector
from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.training.sgd import TINY, LocalSgd, along, clip
from netdfl.training.toy import Quadratic

DTYPES = (torch.float32, torch.float64)
DIRECTION = torch.tensor([1.0, -2.0, 3.0, 0.5, 0.0], dtype=torch.float64)
UNIT = DIRECTION / DIRECTION.norm()


def sized(dtype: torch.dtype, exponent: float) -> Tensor:
    """A gradient whose largest number is the type's largest to the power `exponent`."""
    return (DIRECTION / 3.0 * torch.finfo(dtype).max ** exponent).to(dtype)


every_size = pytest.mark.parametrize("exponent", [0.0, 0.3, 0.49, 0.5, 0.51, 0.75, 0.9999])
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@every_size
@every_dtype
def test_a_gradient_of_any_size_is_clipped_to_the_limit_in_its_direction(dtype: torch.dtype, exponent: float) -> None:
    gradient = sized(dtype, exponent)
    found = clip(gradient, 0.25)
    assert found is gradient
    torch.testing.assert_close(found.double(), 0.25 * UNIT, rtol=1e-6, atol=1e-9)


@every_size
@every_dtype
def test_a_gradient_within_the_limit_stays_as_it_is(dtype: torch.dtype, exponent: float) -> None:
    gradient = sized(dtype, exponent)
    assert torch.equal(clip(gradient.clone(), 4.0 * float(gradient.max())), gradient)


@every_size
@every_dtype
def test_sam_ascends_its_radius_whatever_the_gradients_size(dtype: torch.dtype, exponent: float) -> None:
    at = torch.ones(5, dtype=dtype)
    found = along(at, sized(dtype, exponent), 0.5)
    torch.testing.assert_close(found.double(), 1.0 + 0.5 * UNIT, rtol=1e-6, atol=1e-9)


@every_dtype
def test_rows_are_measured_each_by_itself(dtype: torch.dtype) -> None:
    rows = torch.stack([sized(dtype, exponent) for exponent in (0.0, 0.9, -0.01)])
    each = torch.stack([clip(row.clone(), 0.25) for row in rows])
    assert torch.equal(clip(rows.clone(), 0.25), each)
    start = torch.zeros_like(rows)
    ascents = torch.stack([along(start[0], row, 0.5) for row in rows])
    assert torch.equal(along(start, rows, 0.5), ascents)


@every_dtype
@pytest.mark.parametrize("exponent", [-0.4, -0.2, 0.0, 0.2, 0.4])
def test_of_ordinary_size_not_a_bit_changes(dtype: torch.dtype, exponent: float) -> None:
    gradient = sized(dtype, exponent)
    norm = gradient.norm(dim=-1, keepdim=True) + TINY
    assert torch.equal(clip(gradient.clone(), 0.25), gradient * (0.25 / norm).clamp(max=1.0))
    assert torch.equal(along(gradient, gradient, 0.5), gradient.addcmul(gradient, (0.5 / norm).expand_as(gradient)))


@every_dtype
def test_where_nobody_waits_for_whether_a_norm_is_finite_the_bits_are_the_same(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where to look at a number stops everything else."""
    rows = torch.stack([sized(dtype, exponent) for exponent in (-0.2, 0.0, 0.3, 0.9)])
    looked = clip(rows.clone(), 0.25), along(rows, rows, 0.5)
    monkeypatch.setattr("netdfl.training.sgd.finite", lambda x: False)
    assert torch.equal(clip(rows.clone(), 0.25), looked[0])
    assert torch.equal(along(rows, rows, 0.5), looked[1])
    for row in rows[:3]:
        norm = row.norm(dim=-1, keepdim=True) + TINY
        assert torch.equal(clip(row.clone(), 0.25), row * (0.25 / norm).clamp(max=1.0))


def test_of_nothing_there_is_no_direction() -> None:
    nothing = torch.zeros(5)
    assert torch.equal(clip(nothing.clone(), 1.0), nothing)
    assert torch.equal(along(torch.ones(5), nothing, 1.0), torch.ones(5))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    gradient = torch.tensor([1.0, bad, 2.0])
    assert not finite(clip(gradient, 1.0))


@pytest.mark.parametrize("options", [{"clip_norm": 1.0}, {"rho": 0.5, "clip_norm": 1.0}, {"rho": 0.5}])
def test_steps_down_a_cliff_lead_where_they_do_in_double(options: dict[str, float]) -> None:
    """A slope of 1e20, whose square is beyond float32."""
    ends = []
    for dtype in DTYPES:
        center, curvature = torch.tensor([1e-5, -2e-5], dtype=dtype), torch.full((2,), 1e25, dtype=dtype)
        task = Quadratic(center, torch.zeros(2, dtype=dtype), curvature, node=0, streams=Streams(0))
        sgd = LocalSgd(lr=1e-7 if "clip_norm" in options else 1e-27, steps=3, **options)
        view = View(0, 0, 1, (), (), 1.0, {}, {})
        ends.append(sgd.steps_from(task.initial(), 1.0, task.data(0), view)()[0].double())
    assert float(ends[1].abs().min()) > 0
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_that_overflows_is_not_a_number_that_does(dtype: str) -> None:
    largest = torch.finfo(getattr(torch, dtype)).max
    for make in (torch.tensor, vector):
        for num in (3, 3000):
            numbers = make([largest] * num, dtype=getattr(torch, dtype) if make is torch.tensor else dtype)
            assert finite(numbers)
            numbers[-1] = float("inf")
            assert not finite(numbers)
