"""Checks that a compressor keeps its contract (`netdfl.compression.base.Compressor`); run them on your own compressor.

    def test_mine() -> None:
        check_compressor(lambda: Mine(bits=3))

A failed check raises AssertionError with the promise and the actual result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from netdfl.compression.base import Compressor, EncodedVector
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Array, Scalar

Make = Callable[[], Compressor]

_Contents: TypeAlias = tuple[int, Mapping[str, tuple[str, tuple[int, ...], bytes]], Mapping[str, Scalar]]
_DIMS = (0, 1, 2, 7, 64, 513, 1000)


def check_compressor(make: Make, *, dim: int = 700, draws: int = 400, seed: int = 0) -> None:
    """Run every check in this module on the compressor that `make` returns; statistical checks encode `draws` times."""
    for each in (check_round_trip, check_zero, check_owns_memory, check_repeatable, check_refuses_non_finite):
        each(make, seed=seed)
    check_any_size(make, seed=seed)
    check_error(make, dim=dim, draws=draws, seed=seed)
    check_unbiased(make, dim=dim, draws=draws, seed=seed)
    check_hostile(make, seed=seed)


def _gaussian(dim: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(dim)).to(dtype)


def _contents(
    encoded: EncodedVector,
) -> tuple[int, Mapping[str, tuple[str, tuple[int, ...], bytes]], Mapping[str, Scalar]]:
    arrays = {name: (a.dtype, a.shape, bytes(a.data)) for name, a in encoded.arrays.items()}
    return encoded.dim, arrays, dict(encoded.meta)


def check_round_trip(make: Make, *, seed: int = 0) -> None:
    """Check that vectors of any length and floating-point type decode to finite flat vectors of that length."""
    for dim in _DIMS:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            x = _gaussian(dim, seed, dtype)
            encoded = make().compress(x, np.random.default_rng(seed))
            y = make().decompress(encoded)
            assert encoded.dim == dim, f"compress says dim {encoded.dim} of a vector of {dim}"
            assert y.shape == x.shape, f"decompress gives shape {tuple(y.shape)}, expected {tuple(x.shape)}"
            assert y.is_floating_point(), f"decompress gives {y.dtype}, expected floating-point numbers"
            assert y.device == torch.device("cpu"), f"decompress gives a vector on {y.device}"
            assert bool(torch.isfinite(y).all()), "decompress gives a number that is not finite"
            total = sum(len(bytes(a.data)) for a in encoded.arrays.values())
            assert encoded.nbytes == total, f"nbytes is {encoded.nbytes}, the arrays have {total}"


def check_zero(make: Make, *, seed: int = 0) -> None:
    """Check that the zero vector decodes to zero."""
    for dim in _DIMS:
        y = make().decompress(make().compress(torch.zeros(dim), np.random.default_rng(seed)))
        assert not y.any(), f"a zero vector of {dim} decodes to {y}"


def check_owns_memory(make: Make, *, seed: int = 0) -> None:
    """Check that neither the original vector nor the decoded one shares memory with the encoded vector."""
    x = _gaussian(300, seed)
    encoded = make().compress(x, np.random.default_rng(seed))
    before = _contents(encoded)
    x.fill_(7)
    assert _contents(encoded) == before, "writing to x after compress changed the encoding: copy it"
    make().decompress(encoded).fill_(7)
    assert _contents(encoded) == before, "writing to the decoded vector changed the encoding: copy it"


def check_repeatable(make: Make, *, dim: int = 100_003, seed: int = 0) -> None:
    """Check that one seed gives the same encoded bytes and decoded numbers, by two instances and on one or two threads.

    The vector has `dim` coordinates, by default enough for torch to use several threads.
    """
    x = _gaussian(dim, seed)
    threads = torch.get_num_threads()
    results = []
    try:
        for num in (1, 2, 1):
            torch.set_num_threads(num)
            encoded = make().compress(x.clone(), np.random.default_rng(seed))
            results.append((_contents(encoded), make().decompress(encoded).numpy().tobytes()))
    finally:
        torch.set_num_threads(threads)
    assert results[0] == results[2], "the same seed gave other bytes in a second run"
    assert results[0] == results[1], "2 threads gave other bytes than 1"


def check_refuses_non_finite(make: Make, *, seed: int = 0) -> None:
    """Check that encoding a vector with a NaN or infinity anywhere raises ValueError."""
    for bad in (math.nan, math.inf, -math.inf):
        for at in (0, 600, 999):
            x = _gaussian(1000, seed)
            x[at] = bad
            try:
                make().compress(x, np.random.default_rng(seed))
            except ValueError:
                continue
            raise AssertionError(f"compress took a vector with {bad} at {at}; expected a ValueError")


def check_any_size(make: Make, *, dim: int = 300, seed: int = 0) -> None:
    """Check that finite numbers of any magnitude decode to finite ones, or that encoding raises ValueError."""
    for dtype in (torch.float32, torch.float64):
        limits = torch.finfo(dtype)
        pattern = torch.linspace(-1.0, 1.0, dim, dtype=dtype)
        for size in (limits.smallest_normal, limits.tiny * 2.0**-20, limits.max**0.5, limits.max / 4, limits.max):
            try:
                encoded = make().compress(size * pattern, np.random.default_rng(seed))
            except ValueError:
                continue
            found = make().decompress(encoded)
            assert bool(torch.isfinite(found).all()), f"numbers up to {size:.3g} of {dtype} decode to infinity or NaN"


def check_error(make: Make, *, dim: int = 700, draws: int = 400, seed: int = 0) -> None:
    """Check that the mean of |x - C(x)|^2 / |x|^2 over random draws keeps the bounds that the compressor states.

    It must be at most `variance`, and at most 1 - `contraction` if that is not 0; 5 standard errors more are allowed.
    """
    compressor = make()
    spike = torch.zeros(dim)
    spike[dim // 2] = -3.0
    rng = np.random.default_rng(seed)
    omega, bound = compressor.contraction(dim), compressor.variance(dim)
    assert 0 <= omega <= 1, f"contraction({dim}) is {omega}, expected 0 to 1"
    assert bound >= 0, f"variance({dim}) is {bound}, expected at least 0"
    for x in (_gaussian(dim, seed), torch.ones(dim), spike, _gaussian(dim, seed) ** 3):
        wide = x.double()
        size = float(wide @ wide)
        errors = [
            float(((compressor.decompress(compressor.compress(x, rng)).double() - wide) ** 2).sum()) / size
            for _ in range(draws)
        ]
        low = float(np.mean(errors)) - 5 * float(np.std(errors)) / math.sqrt(draws)
        assert low <= bound + 1e-6, f"the error is {low:.4g} of |x|^2 or more; variance({dim}) promises {bound:.4g}"
        if omega:
            assert low <= 1 - omega + 1e-6, f"the error is {low:.4g} of |x|^2; contraction({dim}) is {omega:.4g}"


def check_unbiased(make: Make, *, dim: int = 700, draws: int = 400, seed: int = 0) -> None:
    """Check that a compressor that states `unbiased` decodes to x on average over draws, within 5 standard errors.

    Each coordinate is checked, and three sums of coordinates.
    """
    compressor = make()
    if not compressor.unbiased:
        return
    x = _gaussian(dim, seed).double()
    rng = np.random.default_rng(seed)
    samples = torch.stack([compressor.decompress(compressor.compress(x, rng)).double() for _ in range(draws)])
    for what, errors in (
        ("a coordinate", samples - x),
        ("the sum", (samples - x).sum(1, keepdim=True)),
        ("<C(x) - x, x>", (samples - x) @ x[:, None]),
        ("<C(x) - x, sign x>", (samples - x) @ x.sign()[:, None]),
    ):
        spread = errors.std(0)
        spread = torch.maximum(spread, spread.square().mean().sqrt()) / math.sqrt(draws) + 1e-12
        worst = float((errors.mean(0).abs() / spread).max())
        assert worst <= 5, f"{what} is {worst:.2f} standard errors off its mean; unbiased promises under 5"


def check_hostile(make: Make, *, dim: int = 300, rounds: int = 20, seed: int = 0) -> None:
    """Check that damaged encodings raise MalformedMessage, or decode to a vector of the stated dimension."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        encoded = make().compress(_gaussian(dim, seed), rng)
        for damaged in damage(encoded, rng):
            check_decodes_or_refuses(make(), damaged)


def check_decodes_or_refuses(compressor: Compressor, encoded: EncodedVector) -> None:
    """Check that `encoded` decodes to a vector of its dimension, or raises MalformedMessage."""
    try:
        y = compressor.decompress(encoded)
    except MalformedMessage:
        return
    assert y.shape == (encoded.dim,), f"decoded to shape {tuple(y.shape)}, expected ({encoded.dim},)"


def damage(encoded: EncodedVector, rng: np.random.Generator) -> Iterator[EncodedVector]:
    """Yield damaged encodings that a hostile or broken peer might send instead of `encoded`."""
    for dim in (0, encoded.dim - 1, encoded.dim + 1, 2 * encoded.dim, -1):
        yield replace(encoded, dim=dim)
    yield replace(encoded, arrays={**encoded.arrays, "extra": Array("uint8", (3,), memoryview(b"abc"))})
    for name in encoded.arrays:
        yield replace(encoded, arrays={k: v for k, v in encoded.arrays.items() if k != name})
        for array in _damaged(encoded.arrays[name], rng):
            yield replace(encoded, arrays={**encoded.arrays, name: array})
    for key in encoded.meta:
        yield replace(encoded, meta={k: v for k, v in encoded.meta.items() if k != key})
        for value in (-1, 0, 1, encoded.dim, encoded.dim + 1, 2**31, 2**63, 0.5, math.nan, "7", None, True, [1]):
            yield replace(encoded, meta={**encoded.meta, key: value})


def _damaged(array: Array, rng: np.random.Generator) -> Iterator[Array]:
    raw = np.frombuffer(bytes(array.data), np.uint8)
    flipped = raw.copy()
    if len(raw):
        flipped[rng.integers(0, len(raw))] ^= rng.integers(1, 256, dtype=np.uint8)
    fills: list[Any] = [np.full_like(raw, 255), np.zeros_like(raw), rng.bytes(len(raw)), flipped, raw[::-1].copy()]
    for fill in fills:
        yield replace(array, data=memoryview(fill).cast("B"))
    for length in (0, len(raw) // 2, max(0, len(raw) - 1), len(raw) + 1, 2 * len(raw) + 8):
        data = (np.resize(raw, length) if len(raw) else np.zeros(length, np.uint8)).data.cast("B")
        yield replace(array, data=data)
        yield Array("uint8", (length,), data)
    yield replace(array, data=memoryview(bytes(2 * len(raw)))[::2])
    for shape in ((), (-1,), (0,), (len(raw), 1), (2**40,)):
        yield replace(array, shape=shape)
    for dtype in ("uint8", "int64", "float16", "bfloat16", "float32", "float64", "bool", "object", "nonsense"):
        yield replace(array, dtype=dtype)
