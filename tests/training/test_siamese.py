"""What each change of DSA does to a picture, that a batch has one in common, and that gradients pass through it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from netdfl.core.rng import Streams
from netdfl.training.siamese import (
    TRANSFORMATIONS,
    Transformation,
    colored,
    cut_out,
    dsa,
    rotated,
    scaled,
    shifted,
)

STREAMS = Streams(3)
SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9))


def pictures(num: int = 2, shape: tuple[int, int, int] = (3, 8, 8)) -> Tensor:
    return torch.from_numpy(STREAMS.rng("pictures").standard_normal((num, *shape)))


def ramp(height: int, width: int, right: float, down: float) -> Tensor:
    """A picture that grows by `right` and `down` per pixel and is 0 in its middle, shape (1, 1, H, W)."""
    rows = torch.arange(height, dtype=torch.float64)[:, None] - (height - 1) / 2
    columns = torch.arange(width, dtype=torch.float64) - (width - 1) / 2
    return (right * columns + down * rows)[None, None]


def inner(x: Tensor) -> Tensor:
    """The middle of a picture, where nothing comes in from outside."""
    height, width = x.shape[2:]
    return x[:, :, height // 3 : -(height // 3), width // 3 : -(width // 3)]


def test_brightness_is_added() -> None:
    x = pictures()
    torch.testing.assert_close(colored(x, 0.25, 1.0, 1.0), x + 0.25, rtol=0, atol=1e-14)


def test_saturation_is_how_far_channels_are_from_gray() -> None:
    x = torch.tensor([1.0, 2.0, 6.0], dtype=torch.float64)[None, :, None, None].expand(1, 3, 2, 2)
    assert torch.equal(colored(x, 0.0, 0.0, 1.0), torch.full_like(x, 3.0))
    assert torch.equal(colored(x, 0.0, 2.0, 1.0)[0, :, 0, 0], torch.tensor([-1.0, 1.0, 9.0], dtype=torch.float64))


@given(saturation=st.floats(0, 2), brightness=st.floats(-0.5, 0.5), contrast=st.floats(0.5, 1.5))
@settings(deadline=None)
def test_gray_pictures_have_no_saturation(saturation: float, brightness: float, contrast: float) -> None:
    x = pictures(shape=(1, 4, 4))
    assert torch.equal(colored(x, brightness, saturation, contrast), colored(x, brightness, 1.0, contrast))
    assert torch.equal(colored(x, 0.0, saturation, 1.0), colored(x, 0.0, 1.0, 1.0))


def test_contrast_is_how_far_pixels_are_from_their_own_pictures_mean() -> None:
    x = torch.tensor([[1.0, 3.0], [10.0, 20.0]], dtype=torch.float64)[:, None, None, :]
    assert colored(x, 0.0, 1.0, 0.5).flatten().tolist() == [1.5, 2.5, 12.5, 17.5]


def test_a_shift_moves_whole_pixels_and_brings_in_zeros() -> None:
    x = torch.arange(1.0, 10.0).reshape(1, 1, 3, 3)
    assert shifted(x, 1, 0)[0, 0].tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    assert shifted(x, -1, 2)[0, 0].tolist() == [[0, 0, 4], [0, 0, 7], [0, 0, 0]]


def test_a_cutout_is_zero_in_a_rectangle_alone_even_over_the_edge() -> None:
    x = torch.ones(1, 2, 3, 4)
    assert cut_out(x, 1, 2, 1, 2)[0, 1].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert cut_out(x, -1, 3, 2, 2)[0, 0].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    assert torch.equal(cut_out(x, -2, 0, 2, 2), x)


def test_a_flip_exchanges_left_and_right() -> None:
    x = pictures(shape=(1, 2, 3))
    made = [dsa(x, np.random.default_rng(seed), transformations=("flip",)) for seed in range(20)]
    flipped = [each for each in made if not torch.equal(each, x)]
    assert 0 < len(flipped) < 20
    assert all(torch.equal(each, x[..., [2, 1, 0]]) for each in flipped)


@pytest.mark.parametrize("shape", [(12, 12), (9, 15)], ids=str)
def test_a_scaled_slope_is_the_slope_over_the_factor(shape: tuple[int, int]) -> None:
    made = scaled(ramp(*shape, 2.0, 3.0), 1.25, 0.8)
    torch.testing.assert_close(inner(made), inner(ramp(*shape, 2.0 / 0.8, 3.0 / 1.25)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(12, 12), (9, 15)], ids=str)
def test_a_turned_slope_is_the_slope_in_the_other_direction(shape: tuple[int, int]) -> None:
    """By an angle a counterclockwise, rows counted downwards, a slope of 1 to the right is (cos a, -sin a)."""
    made, angle = rotated(ramp(*shape, 1.0, 0.0), 30.0), np.pi / 6
    torch.testing.assert_close(inner(made), inner(ramp(*shape, np.cos(angle), -np.sin(angle))), rtol=0, atol=1e-12)


def test_a_quarter_turn_is_one() -> None:
    x = pictures()
    torch.testing.assert_close(rotated(x, 90.0), torch.rot90(x, 1, (2, 3)), rtol=0, atol=1e-12)
    torch.testing.assert_close(rotated(x, 0.0), x, rtol=0, atol=1e-12)
    torch.testing.assert_close(scaled(x, 1.0, 1.0), x, rtol=0, atol=1e-12)


# drawn


@given(seed=st.integers(0, 10**6), name=st.sampled_from(TRANSFORMATIONS), shape=SHAPES)
@settings(deadline=None, max_examples=150)
def test_all_pictures_of_a_batch_have_the_same_change(
    seed: int, name: Transformation, shape: tuple[int, int, int]
) -> None:
    """A picture is changed in company as it is alone; nothing but the batch and the generator matters."""
    x = pictures(3, shape)
    before = x.clone()
    torch.manual_seed(seed)
    made = dsa(x, np.random.default_rng(seed), transformations=(name,))
    alone = [dsa(one[None], np.random.default_rng(seed), transformations=(name,)) for one in x]
    torch.testing.assert_close(made, torch.cat(alone), rtol=0, atol=1e-14)
    assert made.shape == x.shape
    assert torch.equal(x, before)


def test_draws_stay_in_their_ranges_and_fill_them() -> None:
    x, rng = torch.ones(1, 1, 8, 8, dtype=torch.float64), np.random.default_rng(0)
    made = {name: [dsa(x, rng, transformations=(name,)) for _ in range(300)] for name in TRANSFORMATIONS}
    brightness = [float(each.mean()) - 1 for each in made["color"]]
    assert -0.5 <= min(brightness) < -0.45
    assert 0.45 < max(brightness) <= 0.5
    moved = {(int(each.any(3).sum()), int(each.any(2).sum())) for each in made["crop"]}
    assert moved == {(rows, columns) for rows in (7, 8) for columns in (7, 8)}
    assert {int((each == 0).sum()) for each in made["cutout"]} == {a * b for a in (2, 3, 4) for b in (2, 3, 4)}
    assert all(torch.equal(each, x) for each in made["flip"])
    assert {bool(each[0, 0, 0, 0] > 0.99) for each in made["scale"]} == {True, False}


def test_a_flip_happens_in_half_of_the_calls_and_every_change_in_a_sixth() -> None:
    x, rng = pictures(), np.random.default_rng(1)
    flips = sum(not torch.equal(dsa(x, rng, transformations=("flip",)), x) for _ in range(1000))
    assert 420 < flips < 580
    same = sum(torch.equal(dsa(x, rng), x) for _ in range(1200))
    assert 60 < same < 170  # no flip (1/12), or no shift (1/6 of 1/9)


def test_slopes_are_stretched_and_turned_within_their_ranges() -> None:
    x, rng = ramp(9, 9, 1.0, 0.0), np.random.default_rng(2)
    middle = (..., 4, slice(3, 6))
    across = [float(dsa(x, rng, transformations=("scale",))[middle].diff().mean()) for _ in range(300)]
    assert 1 / 1.2 <= min(across) < 0.86
    assert 1.17 < max(across) <= 1.2 + 1e-12
    turned = [float(dsa(x, rng, transformations=("rotate",))[middle].diff().mean()) for _ in range(300)]
    least = float(np.cos(np.radians(15)))
    assert least - 1e-12 <= min(turned) < least + 0.003


@pytest.mark.parametrize("name", TRANSFORMATIONS)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))])
def test_gradients_pass_through(name: Transformation, seed: int) -> None:
    """Against difference quotients in float64, first and second order."""
    x = pictures(2, (3, 4, 5)).requires_grad_()

    def change(pixels: Tensor) -> Tensor:
        return dsa(pixels, np.random.default_rng(seed), transformations=(name,))

    assert torch.autograd.gradcheck(change, x)
    assert torch.autograd.gradgradcheck(change, x)
    (slope,) = torch.autograd.grad(change(x).sum(), x)
    assert bool(slope.any())


def test_the_stream_says_it_all() -> None:
    x = pictures(4)
    first, again, other = (
        [dsa(x, stream) for _ in range(20)]
        for stream in (STREAMS.rng("augment", 1), STREAMS.rng("augment", 1), STREAMS.rng("augment", 2))
    )
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_no_transformations_change_and_draw_nothing() -> None:
    x, rng = pictures(), np.random.default_rng(0)
    assert dsa(x, rng, transformations=()) is x
    assert rng.random() == np.random.default_rng(0).random()


@pytest.mark.parametrize("shape", [(4, 5), (4, 8, 8)], ids=str)
def test_what_is_no_picture_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected pictures, \(N, C, H, W\)"):
        dsa(torch.zeros(shape), np.random.default_rng(0))


def test_its_names_cost_no_torch() -> None:
    code = "import sys, netdfl.training.siamese; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
