"""Every compressor of the table, and the variants that matter, keep the contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from netdfl.compression.arrays import to_array, to_tensor
from netdfl.compression.base import Compressor
from netdfl.compression.catalog import COMPRESSORS
from netdfl.compression.sign import Sign
from netdfl.core.errors import MalformedMessage
from netdfl.testing.compressors import check_compressor, check_decodes_or_refuses, damage

VARIANTS: dict[str, Callable[..., Compressor]] = {
    **COMPRESSORS,
    **{f"qsgd-{bits}": partial(COMPRESSORS["qsgd"], bits=bits) for bits in (1, 2, 3, 5, 8, 9, 12, 16)},
    "qsgd-l2": partial(COMPRESSORS["qsgd"], bits=4, norm="l2", bucket=100),
    "qsgd-whole": partial(COMPRESSORS["qsgd"], bits=5, bucket=0),
    "qsgd-whole-l2": partial(COMPRESSORS["qsgd"], bits=8, bucket=0, norm="l2"),
    "qsgd-40000": partial(COMPRESSORS["qsgd"], bits=3, bucket=40_000, norm="l2"),
    "qsgd-scaled": partial(COMPRESSORS["qsgd"], bits=4, scaled=True),
    "qsgd-scaled-l2": partial(COMPRESSORS["qsgd"], bits=3, norm="l2", scaled=True),
    "qsgd-entropy": partial(COMPRESSORS["qsgd"], bits=4, norm="l2", entropy=True),
    "qsgd-entropy-max": partial(COMPRESSORS["qsgd"], bits=6, entropy=True),
    "qsgd-levels": partial(COMPRESSORS["qsgd"], levels=15),
    "top_k-count": partial(COMPRESSORS["top_k"], count=7),
    "top_k-half": partial(COMPRESSORS["top_k"], fraction=0.5),
    "top_k-threshold": partial(COMPRESSORS["top_k"], fraction=0.2, method="threshold"),
    "random_k-unbiased": partial(COMPRESSORS["random_k"], fraction=0.3, unbiased=True),
    "random_k-most": partial(COMPRESSORS["random_k"], fraction=0.8),
    "sign-whole": partial(COMPRESSORS["sign"], bucket=0),
    "low_rank-1": partial(COMPRESSORS["low_rank"], rank=1),
    "chain-random": partial(COMPRESSORS["chain"], select="random_k", fraction=0.3, bits=4),
    "chain-sign": partial(COMPRESSORS["chain"], bits=1),
    "chain-entropy": partial(COMPRESSORS["chain"], fraction=0.3, bits=3, norm="l2", entropy=True),
}

ALIKE = ("qsgd-2", "qsgd-3", "qsgd-8", "qsgd-12", "qsgd-whole-l2", "qsgd-scaled", "top_k-count", "random_k-most")
"""Of these another width, norm or share stands for the kind."""
all_variants = pytest.mark.parametrize(
    "make",
    [pytest.param(make, marks=[pytest.mark.soak] if name in ALIKE else []) for name, make in VARIANTS.items()],
    ids=VARIANTS.keys(),
)


@all_variants
def test_every_compressor_keeps_the_contract(make: Callable[[], Compressor]) -> None:
    check_compressor(make, draws=50)


@all_variants
@settings(max_examples=25, deadline=None)
@given(dim=st.integers(0, 200), seed=st.integers(0, 2**32), pick=st.integers(0, 10**6))
def test_hostile_encodings_are_refused(make: Callable[[], Compressor], dim: int, seed: int, pick: int) -> None:
    compressor, rng = make(), np.random.default_rng(seed)
    encoded = compressor.compress(torch.from_numpy(rng.standard_normal(dim)), rng)
    once = list(damage(encoded, rng))
    check_decodes_or_refuses(compressor, once[pick % len(once)])
    twice = list(damage(once[pick % len(once)], rng))
    check_decodes_or_refuses(compressor, twice[pick % len(twice)])


@pytest.mark.parametrize("name", [name for name in COMPRESSORS if name != "identity"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_of_a_peer_that_are_not_finite_are_refused(name: str, bad: float) -> None:
    compressor = COMPRESSORS[name]()
    encoded = compressor.compress(torch.linspace(-1, 1, 2000), np.random.default_rng(0))
    floats = [key for key, array in encoded.arrays.items() if "float" in array.dtype]
    assert floats
    for key in floats:
        damaged = to_tensor(encoded.arrays[key]).clone()
        damaged[-1] = bad
        with pytest.raises(MalformedMessage):
            compressor.decompress(replace(encoded, arrays={**encoded.arrays, key: to_array(damaged)}))


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e4), st.floats(-1e4, -1e-3)), min_size=1, max_size=60),
    name=st.sampled_from(
        ["identity", "float16", "bfloat16", "top_k", "sign", "sign-whole", "top_k-count", "top_k-threshold"]
    ),
)
def test_deterministic_contractions_have_no_violation(values: list[float], name: str) -> None:
    compressor = VARIANTS[name]()
    x = torch.tensor(values, dtype=torch.float32)
    error = (
        (compressor.decompress(compressor.compress(x, np.random.default_rng(0))).double() - x.double()).square().sum()
    )
    allowed = (1 - compressor.contraction(len(x))) * x.double().square().sum()
    assert error <= allowed * (1 + 1e-5) + 1e-12 * x.double().square().sum()


def test_one_bit_is_the_sign_compressor() -> None:
    assert COMPRESSORS["qsgd"](bits=1, bucket=64) == Sign(64)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("qsgd", {"bits": 1, "scaled": True}),
        ("qsgd", {"bits": 1, "entropy": True}),
        ("top_k", {"fraction": 0.0}),
        ("random_k", {"fraction": 0.0}),
        ("chain", {"fraction": 0.0}),
    ],
)
def test_options_without_meaning_are_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"bits|fraction"):
        COMPRESSORS[name](**options)


def test_compression_of_a_cpu_vector_leaves_the_gpu_alone() -> None:
    for make in VARIANTS.values():
        make().decompress(make().compress(torch.ones(100), np.random.default_rng(0)))
    assert not torch.cuda.is_initialized()


@pytest.mark.parametrize("name", ["identity", "top_k", "top_k-threshold"])
@pytest.mark.parametrize("at", [0, 8191, 8192, 300_000, 349_999])
@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_one_number_of_many_that_is_not_finite_is_found(name: str, at: int, bad: float) -> None:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(350_000, np.float32))
    x[at] = bad
    with pytest.raises(ValueError, match=rf"x\[{at}\] is {bad}, and 1 of 350000"):
        VARIANTS[name]().compress(x, np.random.default_rng(1))


def test_numbers_whose_squares_overflow_are_finite() -> None:
    x = torch.full((350_000,), 1e30)
    encoded = COMPRESSORS["identity"]().compress(x, np.random.default_rng(0))
    assert torch.equal(COMPRESSORS["identity"]().decompress(encoded), x)


def test_messages_name_the_number_that_is_not_finite() -> None:
    x = torch.ones(5)
    x[3] = float("nan")
    with pytest.raises(ValueError, match=r"x\[3\] is nan"):
        COMPRESSORS["qsgd"]().compress(x, np.random.default_rng(0))


def test_only_flat_floating_vectors_are_compressed() -> None:
    for x in (torch.ones(2, 2), torch.ones(3, dtype=torch.int64)):
        with pytest.raises(ValueError, match="flat floating-point"):
            COMPRESSORS["top_k"]().compress(x, np.random.default_rng(0))


def test_float16_makes_zero_of_what_is_below_its_range_and_bfloat16_does_not() -> None:
    x, rng = torch.tensor([2.0**-25, 1e-20, 2.0**-14], dtype=torch.float64), np.random.default_rng(0)
    half, brain = (
        each.decompress(each.compress(x, rng)) for each in (COMPRESSORS["float16"](), COMPRESSORS["bfloat16"]())
    )
    assert half.tolist() == [0.0, 0.0, 2.0**-14]
    assert brain.tolist() == pytest.approx(x.tolist(), rel=2.0**-8)
