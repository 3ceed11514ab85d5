"""Numbers of every size a float has: encoded as ordinary ones are, made smaller where the text says so, or refused.

All compressors of the catalog are homogeneous: of a vector times a power of two they make what they make of the vector,
times that power. Rounding apart, so it must be up to the edges of the type, where what is too small becomes smaller
still, and what is too large is the sender's own mistake, never its receiver's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from test_catalog import VARIANTS
from torch import Tensor

from netdfl.compression.base import Compressor
from netdfl.compression.catalog import COMPRESSORS
from netdfl.compression.identity import Cast
from netdfl.core.errors import TrainingError
from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.mixing.compressed.references import compress
from netdfl.mixing.payloads import unpack_encoded

DIM = 700
EXPONENTS = {
    torch.float32: (-149, -148, -140, -127, -126, -125, -120, -110, -75, -74, 0, 63, 64, 120, 125, 126, 127),
    torch.float64: (-1074, -1060, -1022, -1021, -1000, -540, -539, -538, -530, -500, 0, 511, 512, 1000, 1022, 1023),
}
"""Powers of two around which a number, its square, its reciprocal or a sum leaves the type."""
SAFE = {torch.float32: (-110, 120), torch.float64: (-1000, 1000)}
"""Between these nothing may be lost or refused."""
REMEDY = "lower the learning rate|clip the gradient|use "

every_variant = pytest.mark.parametrize("make", VARIANTS.values(), ids=VARIANTS.keys())
every_dtype = pytest.mark.parametrize("dtype", EXPONENTS, ids=str)


def ordinary(dtype: torch.dtype) -> Tensor:
    """Numbers below 2: one of them 0, the first the largest that 2^1023, or 2^127, makes no infinity of."""
    x = torch.from_numpy(np.random.default_rng(5).uniform(-1.0, 1.0, DIM)).to(dtype)
    x[0], x[7] = 2.0 - torch.finfo(dtype).eps, 0.0
    return x


def said(compressor: Compressor, x: Tensor) -> Tensor:
    """What a receiver makes of what a node sends, in float64; every time from the same draws."""
    view = View(0, 0, 2, (1,), (1,), 0.5, {1: 0.5}, {1: 0.5})
    return unpack_encoded(compress(compressor, x, Streams(0), view, 0), compressor, x).double()


def said_or_refused(compressor: Compressor, x: Tensor) -> Tensor | str:
    """The same, or the words in which its sender ended."""
    try:
        return said(compressor, x)
    except TrainingError as refusal:
        return str(refusal)


def safe(compressor: Compressor, dtype: torch.dtype, exponent: int) -> bool:
    """Whether numbers of that size are ordinary ones, in what is sent too."""
    ranges = [SAFE[dtype]]
    if isinstance(compressor, Cast):
        sent = torch.finfo(getattr(torch, compressor.dtype))
        ranges.append((math.frexp(sent.tiny)[1] + 11, math.frexp(sent.max)[1] - 2))
    return all(least <= exponent <= most for least, most in ranges)


@every_dtype
@every_variant
def test_numbers_of_any_size_are_sent_as_ordinary_ones_or_smaller_or_refused(
    make: Callable[[], Compressor], dtype: torch.dtype
) -> None:
    compressor = make()
    for exponent in EXPONENTS[dtype]:
        x, factor = ordinary(dtype) * 2.0**exponent, 2.0**exponent
        expected = said(compressor, x / factor) * factor
        found = said_or_refused(compressor, x)
        if isinstance(found, str):
            assert exponent > 0, f"2^{exponent}: {found}"
            assert re.search(REMEDY, found), found
            assert not safe(compressor, dtype, exponent), f"2^{exponent}: {found}"
            continue
        assert bool(found.isfinite().all()), f"2^{exponent}: {found}"
        exact = safe(compressor, dtype, exponent)
        within = 1e-6 * expected.abs() if exact else expected.abs() + 2.0**-133
        assert bool(((found - expected).abs() <= within).all()), f"2^{exponent}: {found}, expected {expected}"


@pytest.mark.parametrize("levels", [1, 3, 7, 127, 255, 32767])
@every_dtype
def test_of_a_bucket_too_small_for_its_levels_qsgd_makes_zero(levels: int, dtype: torch.dtype) -> None:
    compressor, x = COMPRESSORS["qsgd"](levels=levels, bucket=0), ordinary(dtype) / 2
    least = levels / torch.finfo(dtype).max
    assert not said(compressor, x * (0.99 * least)).any()
    assert float(said(compressor, x * (1.01 * least)).abs().max()) == pytest.approx(1.01 * least, rel=1e-4)


@pytest.mark.parametrize("bucket", [0, 100, 70_000])
@pytest.mark.parametrize("size", [1e-300, 1e-160, 2.7e-162, 1e200, 1e300])
def test_an_l2_norm_whose_square_leaves_float64_is_measured_all_the_same(size: float, bucket: int) -> None:
    """Of three buckets one is of that size, one ordinary and one zero."""
    numbers = np.random.default_rng(0).uniform(0.5, 1.0, 3 * (bucket or 100))
    part = len(numbers) // 3
    numbers[:part] *= size
    numbers[part : 2 * part] = 0.0
    if not bucket:
        numbers[2 * part :] = 0.0
    x = torch.from_numpy(numbers)
    encoded = COMPRESSORS["qsgd"](bits=8, norm="l2", bucket=bucket).compress(x, np.random.default_rng(1))
    scales = np.frombuffer(encoded.arrays["scales"].data, np.float64)
    near = np.linalg.norm(numbers[:part] / size) * size
    expected = [near] if not bucket else [near, 0.0, np.linalg.norm(numbers[2 * part :])]
    np.testing.assert_allclose(scales, expected, rtol=1e-14)
