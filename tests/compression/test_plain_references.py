"""Each compressor beside a few lines that say what it makes of a vector, number by number, and who it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from test_catalog import VARIANTS

from netdfl.compression import positions
from netdfl.compression.arrays import as_vector, from_numpy, snapshot, to_tensor
from netdfl.compression.base import Compressor, EncodedVector
from netdfl.compression.bits import from_unary, pack, packed_nbytes, unary, unpack
from netdfl.compression.buckets import PIECE, SPAN, bucket_totals, pieces, spans
from netdfl.compression.catalog import COMPRESSORS
from netdfl.compression.dither import fractions
from netdfl.compression.qsgd import Qsgd
from netdfl.compression.sparsify import TopK, random_subset
from netdfl.core.errors import MalformedMessage

Numbers = NDArray[np.float64]


def drawn(dim: int, seed: int = 0) -> Numbers:
    return np.random.default_rng(seed).standard_normal(dim)


def encoded(compressor: Compressor, x: Numbers | torch.Tensor, seed: int = 1) -> EncodedVector:
    given = torch.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x
    return compressor.compress(given, np.random.default_rng(seed))


def said(compressor: Compressor, x: Numbers | torch.Tensor, seed: int = 1) -> Numbers:
    found: Numbers = compressor.decompress(encoded(compressor, x, seed)).double().numpy()
    return found


def in_buckets(x: Numbers, bucket: int) -> list[Numbers]:
    size = bucket or max(1, len(x))
    return [x[first : first + size] for first in range(0, len(x), size)]


def joined(parts: list[Numbers]) -> Numbers:
    return np.concatenate([np.empty(0), *parts])


SIZES = [(0, 512), (1, 512), (5, 0), (700, 7), (700, 512), (1024, 512), (700, 0), (SPAN * 65_520 + 700, 4096)]
"""Numbers and numbers of a bucket: none, one, one bucket, many of which the last is short, and more than a span."""


# every number


@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("levels", [1, 5, 127, 200, 32767])
@pytest.mark.parametrize(("dim", "bucket"), SIZES)
def test_a_quantized_number_is_the_level_below_it_moved_up_by_its_fraction(
    dim: int, bucket: int, levels: int, norm: Any
) -> None:
    x = drawn(dim)
    whole = [part.double().clone() for part in fractions(np.random.default_rng(1), spans(dim, bucket), 0, double=True)]
    us = [part[: span.stop - span.start] for part, span in zip(whole, spans(dim, bucket), strict=True)]
    u = torch.cat([torch.empty(0, dtype=torch.float64), *us]).numpy() - 2**20
    norms = [np.abs(part).max() if norm == "max" else np.sqrt(np.sum(part**2)) for part in in_buckets(x, bucket)]
    each = np.repeat(norms, [len(part) for part in in_buckets(x, bucket)]).astype(np.float64)
    expected = np.floor(x / each * levels + u) * each / levels
    np.testing.assert_allclose(said(Qsgd(levels, bucket, norm), x), expected, rtol=1e-12)
    shrink = 1 - Qsgd(levels, bucket, norm, scaled=True).variance(dim)
    np.testing.assert_allclose(said(Qsgd(levels, bucket, norm, scaled=True), x), shrink * expected, rtol=1e-12)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("dim", "bucket"), [size for size in SIZES if size[0] < PIECE])
def test_a_norm_is_rounded_up_to_the_next_number_of_its_type(dim: int, bucket: int, kind: Any) -> None:
    """So no number of the bucket is beyond its highest level."""
    x = drawn(dim).astype(kind)
    sent = encoded(Qsgd(7, bucket, "l2"), torch.from_numpy(x))
    measured = [np.sqrt(np.float64(np.einsum("ij,ij->i", part[None], part[None])[0])) for part in in_buckets(x, bucket)]
    expected = np.nextafter(np.array(measured[: len(x)]).astype(kind), kind(np.inf))
    assert np.array_equal(to_tensor(sent.arrays["scales"]).numpy(), expected)


@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize(("dim", "bucket"), SIZES)
def test_entropy_codes_say_the_levels_that_fixed_codes_say_and_are_shorter_or_not_taken(
    dim: int, bucket: int, norm: Any
) -> None:
    x = drawn(dim)
    for levels in (2, 7):
        plain, coded = Qsgd(levels, bucket, norm), Qsgd(levels, bucket, norm, entropy=True)
        assert np.array_equal(said(plain, x), said(coded, x))
        taken = "rice" in encoded(coded, x).meta
        assert (encoded(coded, x).nbytes < encoded(plain, x).nbytes) is taken


@pytest.mark.parametrize(("dim", "bucket"), SIZES)
def test_a_sign_stands_for_the_mean_magnitude_of_its_bucket(dim: int, bucket: int) -> None:
    x = drawn(dim)
    x[::5] = 0.0
    expected = joined([np.where(part < 0, -1, 1) * np.abs(part).mean() for part in in_buckets(x, bucket)])
    np.testing.assert_allclose(said(COMPRESSORS["sign"](bucket=bucket), x), expected, rtol=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 7, 9, 10, 700])
@pytest.mark.parametrize("rank", [1, 2, 5])
def test_a_product_of_low_rank_is_the_projection_onto_the_directions_drawn(dim: int, rank: int) -> None:
    x = drawn(dim)
    rows = math.ceil(math.sqrt(dim))
    columns = math.ceil(dim / rows)
    kept = min(rank, rows, columns)
    matrix = np.concatenate([x, np.zeros(rows * columns - dim)]).reshape(rows, columns)
    start = np.random.default_rng(1).standard_normal((kept, columns))
    basis, _ = np.linalg.qr(matrix @ start.T)
    expected = (basis @ (basis.T @ matrix)).reshape(-1)[:dim]
    compressor = COMPRESSORS["low_rank"](rank=rank)
    np.testing.assert_allclose(said(compressor, x), expected, rtol=1e-9, atol=1e-12)
    assert encoded(compressor, x).nbytes == 8 * kept * (rows + columns)


@pytest.mark.parametrize(("count", "dim"), [(1, 1), (1, 700), (70, 700), (350, 700), (699, 700), (700, 700)])
def test_coordinates_that_are_sent_are_the_largest_or_those_of_the_seed(count: int, dim: int) -> None:
    x = drawn(dim)
    largest = np.argsort(-np.abs(x), kind="stable")[:count]
    expected = np.zeros(dim)
    expected[largest] = x[largest]
    assert np.array_equal(said(COMPRESSORS["top_k"](count=count), x), expected)
    for unbiased in (False, True):
        compressor = COMPRESSORS["random_k"](count=count, unbiased=unbiased)
        seed = int(to_tensor(encoded(compressor, x).arrays["seed"])[0])
        assert 0 <= seed < 2**63
        assert seed == int(np.random.default_rng(1).integers(0, 2**63, 1, np.int64)[0])
        at = random_subset(seed, count, dim)
        expected = np.zeros(dim)
        expected[at] = x[at] * (dim / count if unbiased else 1)
        np.testing.assert_allclose(said(compressor, x), expected, rtol=1e-12)


def test_a_chain_says_of_the_coordinates_kept_what_its_second_part_says() -> None:
    x = drawn(700)
    at = np.sort(np.argsort(-np.abs(x), kind="stable")[:70])
    expected = np.zeros(700)
    expected[at] = said(COMPRESSORS["qsgd"](bits=4, bucket=16), x[at])
    assert np.array_equal(said(COMPRESSORS["chain"](fraction=0.1, bits=4, bucket=16), x), expected)


def test_a_threshold_is_kept_to_only_where_it_is_asked_for() -> None:
    assert TopK(0.1, 0) == TopK(0.1, 0, estimate=False) == COMPRESSORS["top_k"]()
    assert COMPRESSORS["top_k"](method="threshold") == TopK(0.1, 0, estimate=True)


# who is refused


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_one_number_that_is_not_finite_is_refused_in_any_precision(name: str, dtype: torch.dtype) -> None:
    for bad in (math.nan, math.inf, -math.inf):
        for dim in (1, 40):
            x = torch.linspace(-1, 1, dim).to(dtype)
            x[-1] = bad
            with pytest.raises(ValueError, match=rf"x\[{dim - 1}\] is {bad}, and 1 of {dim} numbers"):
                encoded(VARIANTS[name](), x)


@pytest.mark.parametrize("ends", [[1.0], [-1.0], [1.0, -1.0]])
@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("levels", [4, 5, 6, 7])
def test_levels_up_to_the_last_are_taken_and_the_next_one_is_not(levels: int, entropy: bool, ends: list[float]) -> None:
    """All of these have codes of 4 bits, so a peer may send any of them."""
    x = np.concatenate([np.zeros(60), ends])
    sent = encoded(Qsgd(levels, 0, "max", entropy=entropy), x)
    assert ("quotients" in sent.arrays) is entropy
    if entropy:
        with pytest.raises(MalformedMessage, match="arrays"):
            Qsgd(7, 0, "max").decompress(sent)
    for expected in (4, 5, 6, 7):
        reader = Qsgd(expected, 0, "max", entropy=entropy)
        if levels <= expected:
            assert float(reader.decompress(sent).abs().max()) == pytest.approx(levels / expected)
        else:
            with pytest.raises(MalformedMessage, match="level"):
                reader.decompress(sent)


@pytest.mark.parametrize("small", [0.0, 1 / 7])
def test_entropy_codes_are_no_longer_than_fixed_ones_or_refused(small: float) -> None:
    """Of levels that are nearly all 0 no bit is a remainder, of others one is."""
    x, coded = np.concatenate([np.full(60, small), [1.0, -1.0]]), Qsgd(7, 0, "max", entropy=True)
    sent = encoded(coded, x)
    quotients, remainders = (to_tensor(sent.arrays[name]) for name in ("quotients", "remainders"))
    assert (len(remainders) > 0) == (small > 0)
    room = packed_nbytes(62, bits=4) - len(quotients) - len(remainders)
    for more in (room, room + 1):
        longer = torch.cat([quotients, torch.zeros(more, dtype=torch.uint8)])
        padded = replace(sent, arrays={**sent.arrays, "quotients": snapshot(longer)})
        if more == room:
            assert torch.equal(coded.decompress(padded), coded.decompress(sent))
        else:
            with pytest.raises(MalformedMessage, match="expected less than fixed codes of 4 bits take"):
                coded.decompress(padded)


def test_entropy_codes_of_nothing_and_with_an_odd_parameter() -> None:
    coded = Qsgd(7, 0, "max", entropy=True)
    sent = encoded(coded, np.concatenate([np.zeros(60), [1.0, -1.0]]))
    nothing = {name: snapshot(torch.empty(0, dtype=torch.uint8)) for name in ("quotients", "remainders")}
    empty = EncodedVector(0, {"scales": snapshot(torch.empty(0)), **nothing}, {"rice": 0})
    assert coded.decompress(empty).numel() == 0
    for k in (-1, 4):
        with pytest.raises(MalformedMessage, match=r"rice = .*; expected an integer from 0 to 3"):
            coded.decompress(replace(sent, meta={"rice": k}))


@pytest.mark.parametrize(("last", "fits"), [(32, True), (33, False), (39, False)])
def test_the_last_position_is_below_the_dimension(last: int, fits: bool) -> None:
    """Of 33 numbers 4 are listed by their high parts, from 0 to 4, and 3 low bits each."""
    at = np.array([0, 8, 31, last])
    high = np.zeros(positions.encode(np.arange(4), 33)["high"].nbytes, np.uint8)
    high[: len(unary(at >> 3))] = unary(at >> 3)
    arrays = {"high": from_numpy(high), "low": from_numpy(pack((at & 7).astype(np.uint8), 3))}
    if fits:
        assert positions.decode(EncodedVector(33, arrays), 4, 33).tolist() == at.tolist()
    else:
        with pytest.raises(MalformedMessage, match=f"reach {last}; expected increasing under 33"):
            positions.decode(EncodedVector(33, arrays), 4, 33)


# what is done for speed


def test_a_flat_vector_of_a_type_that_numpy_has_is_not_copied_and_any_other_is_laid_out() -> None:
    whole = torch.arange(6.0)
    assert np.shares_memory(as_vector(whole), whole.numpy())
    assert as_vector(whole.double().requires_grad_()).tolist() == whole.tolist()
    for given, kind in ((whole[::2], "float32"), (whole.double()[::2], "float64"), (whole.half(), "float32")):
        found = as_vector(given)
        assert (found.tolist(), found.dtype.name) == (given.tolist(), kind)
        assert found.flags.c_contiguous


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [1, 30, 1000, 30_000])
def test_of_ordinary_vectors_few_more_than_the_largest_are_looked_at(
    count: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, looked_at = drawn(300_000).astype(dtype), list[int]()
    partition = np.partition

    def watched(keys: Any, kth: int) -> Any:
        looked_at.append(len(keys))
        return partition(keys, kth)

    monkeypatch.setattr(positions.np, "partition", watched)
    indices, _ = positions.largest(x, count)
    assert len(indices) == count
    middle = count * len(x[::64]) / len(x)
    assert count <= looked_at[0] <= count + 64 * (12 * math.sqrt(middle) + 12)


def test_a_threshold_is_that_of_a_sample_as_large_as_its_precision_asks_for() -> None:
    class Asked:
        def integers(self, low: int, high: int, size: int) -> NDArray[np.int64]:
            asked.append((low, high, size))
            return np.random.default_rng(0).integers(low, high, size)

    x, asked = drawn(400_000), list[tuple[int, int, int]]()
    for count in (1, 100, 40_000, 400_000):
        positions.above(x, count, (0, len(x)), Asked())  # type: ignore[arg-type]
    assert asked == [(0, 400_000, size) for size in (2**17, 2**17, 6400, 4096)]
    positions.above(x[:1000], 1000, (0, 1000), Asked())  # type: ignore[arg-type]
    assert asked[-1] == (0, 1000, 1000)


@pytest.mark.parametrize("dim", [0, 1, 699, 700, PIECE, PIECE + 1, 3 * PIECE + 5])
@pytest.mark.parametrize("bucket", [0, 7, 700, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE])
def test_pieces_lie_side_by_side_and_add_up_by_buckets(dim: int, bucket: int) -> None:
    x = torch.arange(dim, dtype=torch.float64)
    views = pieces(x, bucket)
    assert torch.equal(torch.cat([torch.empty(0, dtype=torch.float64), *(view.reshape(-1) for view in views)]), x)
    assert all(view.numel() <= PIECE and view.numel() for view in views)
    sums = joined([view.sum(1).numpy() for view in views])
    expected = [part.sum() for part in in_buckets(x.numpy(), bucket)]
    assert bucket_totals(np.add, sums, dim, bucket).tolist() == expected


@pytest.mark.parametrize("bits", [1, 3, 8, 12])
def test_codes_are_packed_into_bytes_of_their_own_but_for_whole_bytes(bits: int) -> None:
    codes = np.arange(16, dtype=np.uint16 if bits > 8 else np.uint8) % 2
    packed = pack(codes, bits)
    assert np.shares_memory(packed, codes) is (bits == 8)
    assert np.shares_memory(unpack(packed, 16, bits), packed) is (bits == 8)
    assert from_unary(unary(np.array([0, 3, 3])), 3) is not None
