"""The quantizer has the variance, the levels and the size that the paper's formulas give."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from netdfl.compression.buckets import PIECE, SPAN, spans
from netdfl.compression.catalog import COMPRESSORS
from netdfl.compression.dither import fractions
from netdfl.compression.qsgd import Qsgd

Norm = Literal["max", "l2"]


def _decode(compressor: Qsgd, x: torch.Tensor, seed: int) -> np.ndarray:
    decoded: np.ndarray = compressor.decompress(compressor.compress(x, np.random.default_rng(seed))).double().numpy()
    return decoded


def _norms(x: np.ndarray, bucket: int, norm: Norm) -> np.ndarray:
    """The norm of its bucket, for every coordinate."""
    parts = [x[i : i + bucket] for i in range(0, len(x), bucket)]
    return np.concatenate([np.full(len(p), np.abs(p).max() if norm == "max" else np.linalg.norm(p)) for p in parts])


def _variance(x: np.ndarray, levels: int, bucket: int, norm: Norm) -> float:
    """Sum of f (1 - f) |x|^2 / s^2 over the coordinates."""
    norms = _norms(x, bucket, norm)
    scaled = levels * np.abs(x) / np.where(norms > 0, norms, 1)
    f = scaled - np.floor(scaled)
    return float(np.sum(f * (1 - f) * (norms / levels) ** 2))


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("bucket", [512, 100, 40_000])
def test_variance_is_the_formulas(bits: int, norm: Norm, bucket: int) -> None:
    compressor = Qsgd(2 ** (bits - 1) - 1, bucket, norm)
    x = np.random.default_rng(1).standard_normal(70_000).astype(np.float32)
    draws = [np.sum((_decode(compressor, torch.from_numpy(x), seed) - x) ** 2) for seed in range(12)]
    assert np.mean(draws) == pytest.approx(_variance(x.astype(np.float64), compressor.levels, bucket, norm), rel=0.03)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bits", [2, 4, 8, 12])
def test_each_number_goes_to_one_of_its_two_levels(bits: int, dtype: torch.dtype) -> None:
    compressor = Qsgd(2 ** (bits - 1) - 1, 64, "max")
    x = torch.from_numpy(np.random.default_rng(2).standard_normal(5000)).to(dtype)
    levels = _decode(compressor, x, 3) * compressor.levels / _norms(x.double().numpy(), 64, "max")
    exact = x.double().numpy() * compressor.levels / _norms(x.double().numpy(), 64, "max")
    assert np.abs(levels - np.rint(levels)).max() < 1e-3
    assert (np.abs(levels - exact) < 1 + 1e-3).all()
    assert (levels * exact >= 0).all()


@pytest.mark.parametrize("fraction", [0.001, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("levels", [1, 127, 2047])
def test_the_upper_level_comes_with_the_probability_of_the_fraction(fraction: float, levels: int) -> None:
    draws = 400_000
    x = torch.full((draws + 1,), -fraction / levels)
    x[0] = 1.0
    up = np.rint(_decode(Qsgd(levels, 0, "max"), x, 5)[1:] * levels)
    assert set(np.unique(up)) == {-1.0, 0.0}
    standard_error = math.sqrt(fraction * (1 - fraction) / draws)
    assert abs(-up.mean() - fraction) < 5 * standard_error + 2**-16


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e6), st.floats(-1e6, -1e-6)), min_size=1, max_size=50),
    bits=st.integers(2, 8),
    bucket=st.integers(0, 60),
    norm=st.sampled_from(["max", "l2"]),
)
def test_the_exact_variance_keeps_the_bound(values: list[float], bits: int, bucket: int, norm: Norm) -> None:
    x = np.array(values)
    levels = 2 ** (bits - 1) - 1
    bound = Qsgd(levels, bucket, norm).variance(len(x))
    exact = _variance(x, levels, bucket or len(x), norm)
    rounding = 1e-12 * float(x @ x)  # a fraction that should be 0 comes out as some 1e-15
    assert exact <= bound * float(x @ x) * (1 + 1e-9) + rounding
    omega = Qsgd(levels, bucket, norm, scaled=True).contraction(len(x))
    shrink = 1 / (1 + bound)
    assert omega == pytest.approx(shrink)
    assert shrink**2 * exact + (1 - shrink) ** 2 * float(x @ x) <= (1 - omega) * float(x @ x) * (1 + 1e-9) + rounding


@pytest.mark.parametrize("bits", range(2, 17))
@pytest.mark.parametrize(("dim", "bucket"), [(320_010, 512), (1000, 7), (999, 0), (1, 512), (0, 512)])
def test_nbytes_is_the_formula(bits: int, dim: int, bucket: int) -> None:
    encoded = COMPRESSORS["qsgd"](bits=bits, bucket=bucket).compress(torch.ones(dim), np.random.default_rng(0))
    buckets = math.ceil(dim / bucket) if bucket else min(dim, 1)
    assert encoded.nbytes == math.ceil(dim * bits / 8) + 4 * buckets


def test_entropy_coding_shortens_what_is_mostly_zero_and_changes_no_number() -> None:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(50_000))
    plain, coded = Qsgd(7, 512, "l2"), Qsgd(7, 512, "l2", entropy=True)
    one, two = (c.compress(x, np.random.default_rng(1)) for c in (plain, coded))
    assert torch.equal(plain.decompress(one), coded.decompress(two))
    assert two.nbytes < 0.5 * one.nbytes


def test_entropy_coding_never_lengthens() -> None:
    x = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, 5000))
    plain, coded = Qsgd(7, 512, "max"), Qsgd(7, 512, "max", entropy=True)
    one, two = (c.compress(x, np.random.default_rng(1)) for c in (plain, coded))
    assert two.nbytes <= one.nbytes
    assert torch.equal(plain.decompress(one), coded.decompress(two))


@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("bits", [2, 8, 16])
@pytest.mark.parametrize("size", [1e-42, 1e-37, 1e-25, 1e-12, 1e12, 1e25, 3e38])
def test_levels_stay_in_range_at_any_size(norm: Norm, bits: int, size: float) -> None:
    x = torch.zeros(40_000)
    x[::512] = size
    x[1::512] = -size * 1e-3
    decoded = _decode(Qsgd(2 ** (bits - 1) - 1, 512, norm), x, 0)
    assert np.abs(decoded).max() <= 2 * size
    assert size < 1e-30 or np.abs(decoded).max() >= size / 2


def test_an_l2_norm_beyond_float32_is_refused() -> None:
    with pytest.raises(ValueError, match="l2 norm"):
        Qsgd(7, 512, "l2").compress(torch.full((512,), 3e38), np.random.default_rng(0))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("offset", [2, 8, 128])
def test_fractions_are_uniform_and_pairwise_independent(double: bool, offset: int) -> None:
    drawn = fractions(np.random.default_rng(0), spans(8 * PIECE, 512), offset, double=double)
    whole = [span.double().clone() for span in drawn]
    assert [len(span) for span in whole] == [SPAN * PIECE] * (8 // SPAN)
    pieces = [piece.numpy() for span in whole for piece in span.split(PIECE)]
    base = math.floor(pieces[0].min())
    assert base == 2**20 + offset if double else base == 128 + offset % 128
    us = [piece - base for piece in pieces]
    for i, u in enumerate(us):
        assert u.min() > 0
        assert u.max() < 1
        assert abs(u.mean() - 0.5) < 5 / math.sqrt(12 * PIECE)
        assert np.abs(np.histogram(u, 16, (0, 1))[0] - PIECE / 16).max() < 5 * math.sqrt(PIECE / 16)
        assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 5 / math.sqrt(PIECE)
        assert all(not np.array_equal(u, other) for other in us[:i])


def test_two_pieces_of_one_coordinate_are_uncorrelated_over_seeds() -> None:
    two = spans(PIECE + 1, 2 * PIECE)
    (drawn,) = {span.pieces for span in two}
    assert drawn == (PIECE, 1)
    each = (next(fractions(np.random.default_rng(s), two, 2, double=False)) for s in range(400))
    pairs = np.array([[float(floats[0]), float(floats[PIECE])] for floats in each])
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 5 / math.sqrt(400)
