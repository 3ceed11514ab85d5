"""Top-k is exactly the largest, random-k exactly uniform, and positions take the bytes promised."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from netdfl.compression import positions
from netdfl.compression.arrays import from_numpy
from netdfl.compression.base import EncodedVector
from netdfl.compression.bits import pack, unary
from netdfl.compression.catalog import COMPRESSORS
from netdfl.compression.positions import above, largest
from netdfl.compression.sparsify import TopK, random_subset
from netdfl.core.errors import MalformedMessage


def _naive(x: np.ndarray, count: int) -> list[int]:
    return sorted(np.argsort(-np.abs(x), kind="stable")[:count].tolist())


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 1e-30, 1e30]), min_size=1, max_size=80),
    data=st.data(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_largest_is_a_stable_sort_by_magnitude(values: list[float], data: st.DataObject, dtype: type) -> None:
    x = np.array(values, dtype)
    count = data.draw(st.integers(0, len(x)))
    assert largest(x, count)[0].tolist() == _naive(x, count)


@pytest.mark.parametrize("fraction", [1e-5, 0.01, 0.1, 0.5, 0.999, 1])
@pytest.mark.parametrize("kind", ["gaussian", "sparse", "equal", "sorted", "periodic"])
def test_largest_whatever_the_sample_shows(kind: str, fraction: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(100_000).astype(np.float32)
    if kind == "sparse":
        x[rng.random(len(x)) < 0.99] = 0
    elif kind == "equal":
        x[:] = -2
    elif kind == "sorted":
        x.sort()
    elif kind == "periodic":
        x[::64] *= 1000
    count = max(1, round(fraction * len(x)))
    indices, numbers = largest(x, count)
    assert indices.tolist() == _naive(x, count)
    assert numbers.tobytes() == x[indices].tobytes()


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.5])
def test_the_threshold_keeps_all_above_it_and_about_as_many(fraction: float) -> None:
    x = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    count = round(fraction * len(x))
    bounds = (-(-count * 4 // 5), count * 6 // 5)
    found = above(x, count, bounds, np.random.default_rng(1))
    assert found is not None
    indices, numbers = found
    assert bounds[0] <= len(indices) <= bounds[1]
    assert indices.tolist() == _naive(x, len(indices))
    assert numbers.tobytes() == x[indices].tobytes()


@pytest.mark.parametrize("fraction", [0.01, 0.5])
def test_the_threshold_serves_from_the_first_bound_to_the_last(fraction: float) -> None:
    x = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    count = round(fraction * len(x))

    def found(low: int, high: int) -> int | None:
        kept = above(x, count, (low, high), np.random.default_rng(1))
        return None if kept is None else len(kept[0])

    num = found(0, len(x))
    assert num is not None
    bounds = [(num, num), (num + 1, len(x)), (0, num - 1), (num - 1, num + 1)]
    assert [found(*each) for each in bounds] == [num, None, None, num]
    assert above(x, 0, (0, 0), np.random.default_rng(1)) is None


def test_the_threshold_falls_back_to_the_exact_count_among_equals() -> None:
    encoded = TopK(0.1, 0, estimate=True).compress(torch.ones(5000), np.random.default_rng(0))
    assert encoded.meta["count"] == 500


@pytest.mark.parametrize("dim", [1, 2, 9, 1000, 320_010])
@pytest.mark.parametrize("fraction", [0.001, 0.01, 0.1, 0.25, 0.5, 0.95, 1])
def test_nbytes_is_the_formula(dim: int, fraction: float) -> None:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(dim)).float()
    k = max(1, round(fraction * dim))
    low = math.floor(math.log2(dim / k))
    listed = math.ceil((k + ((dim - 1) >> low)) / 8) + math.ceil(k * low / 8)
    expected = 4 * k + (0 if k == dim else min(math.ceil(dim / 8), listed))
    encoded = COMPRESSORS["top_k"](fraction=fraction).compress(x, np.random.default_rng(0))
    assert encoded.nbytes == expected
    assert positions.nbytes(k, dim) == expected - 4 * k
    assert listed <= math.ceil(k * (2 + math.log2(dim / k)) / 8) + 1 or k == dim
    assert COMPRESSORS["random_k"](fraction=fraction).compress(x, np.random.default_rng(0)).nbytes == 4 * k + 8


@pytest.mark.parametrize("dim", [1, 8, 9, 33, 64, 100])
def test_positions_are_said_by_a_bitmap_or_by_a_list_whichever_is_shorter(dim: int) -> None:
    for count in range(dim + 1):
        arrays = positions.encode(np.arange(count), dim)
        low = math.floor(math.log2(dim / max(1, count)))
        listed = math.ceil((count + ((dim - 1) >> low)) / 8) + math.ceil(count * low / 8)
        shorter = min(math.ceil(dim / 8), listed) if 0 < count < dim else 0
        kind = {"bitmap"} if math.ceil(dim / 8) <= listed else {"high", "low"}
        assert set(arrays) == (kind if 0 < count < dim else set())
        assert sum(array.nbytes for array in arrays.values()) == positions.nbytes(count, dim) == shorter
        assert positions.decode(EncodedVector(dim, arrays), count, dim).tolist() == list(range(count))


def test_by_a_threshold_what_is_above_it_is_sent_and_by_count_as_many_as_are_asked_for() -> None:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(50_000))
    sent = [TopK(0.1, 0, estimate).compress(x, np.random.default_rng(1)) for estimate in (False, True)]
    found = above(x.numpy(), 5000, (4000, 6000), np.random.default_rng(1))
    assert found is not None
    assert [each.meta["count"] for each in sent] == [5000, len(found[0])]
    assert len(found[0]) != 5000


@given(data=st.data(), dim=st.integers(1, 400))
def test_positions_come_back(data: st.DataObject, dim: int) -> None:
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, dim - 1)))), np.int64)
    arrays = positions.encode(chosen, dim)
    assert sum(a.nbytes for a in arrays.values()) == positions.nbytes(len(chosen), dim)
    assert positions.decode(EncodedVector(dim, arrays), len(chosen), dim).tolist() == chosen.tolist()


@pytest.mark.parametrize("low", [[0, 0, 0, 0], [3, 2, 1, 0], [7, 7, 7, 7]])
def test_positions_that_repeat_go_back_or_leave_the_range_are_refused(low: list[int]) -> None:
    # 4 of 33 keep 3 low bits; all four share the high part 0, or 4 for the last case, where 32 is the end.
    high = unary(np.full(4, 4 if low[0] == 7 else 0, np.int64))
    packed = pack(np.array(low, np.uint8), 3)
    arrays = {
        "high": from_numpy(np.resize(high, positions.encode(np.arange(4), 33)["high"].nbytes)),
        "low": from_numpy(packed),
    }
    with pytest.raises(MalformedMessage, match="repeat"):
        positions.decode(EncodedVector(33, arrays), 4, 33)


@settings(deadline=None)
@given(data=st.data(), dim=st.integers(2, 100))
def test_any_bytes_give_increasing_positions_in_range_or_a_refusal(data: st.DataObject, dim: int) -> None:
    count = data.draw(st.integers(1, dim - 1))
    good = positions.encode(np.arange(count), dim)
    arrays = {}
    for name, array in good.items():
        raw = data.draw(st.binary(min_size=array.nbytes, max_size=array.nbytes))
        arrays[name] = type(array)("uint8", array.shape, memoryview(raw))
    try:
        indices = positions.decode(EncodedVector(dim, arrays), count, dim)
    except MalformedMessage:
        return
    assert len(indices) == count
    assert 0 <= indices[0] <= indices[-1] < dim
    assert (np.diff(indices) > 0).all()


@pytest.mark.parametrize(("count", "dim"), [(0, 5), (1, 1), (1, 10), (5, 10), (9, 10), (10, 10), (300, 1000)])
def test_a_random_subset_has_distinct_increasing_indices(count: int, dim: int) -> None:
    indices = random_subset(7, count, dim)
    assert len(indices) == count
    assert sorted(set(indices.tolist())) == indices.tolist()
    assert set(indices.tolist()) <= set(range(dim))


@pytest.mark.parametrize("count", [1, 3, 6])
def test_every_subset_is_as_likely(count: int) -> None:
    draws = 7000
    seen: dict[tuple[int, ...], int] = {}
    for seed in range(draws):
        subset = tuple(random_subset(seed, count, 7).tolist())
        seen[subset] = seen.get(subset, 0) + 1
    assert len(seen) == math.comb(7, count)
    expected = draws / len(seen)
    assert max(abs(n - expected) for n in seen.values()) < 5 * math.sqrt(expected)


@pytest.mark.parametrize(("estimate", "taken"), [(False, {5}), (True, {4, 5, 6})])
def test_a_fifth_more_or_less_is_taken_where_a_threshold_decides(estimate: bool, taken: set[int]) -> None:
    top = TopK(0.1, 0, estimate)
    for count in range(2, 9):
        values = {"values": from_numpy(np.ones(count)), **positions.encode(np.arange(count), 50)}
        sent = EncodedVector(50, values, {"count": count})
        if count in taken:
            assert top.decompress(sent).tolist() == [1.0] * count + [0.0] * (50 - count)
        else:
            with pytest.raises(MalformedMessage, match=f"count = {count}"):
                top.decompress(sent)
    assert top.variance(50) == 1 - min(taken) / 50


@pytest.mark.parametrize("count", [1, 7, 49, 50])
def test_what_is_above_a_threshold_is_no_smaller_than_that_rank_of_the_sample(count: int) -> None:
    x = np.random.default_rng(0).standard_normal(50)
    sample = np.sort(np.abs(x[np.random.default_rng(1).integers(0, 50, 50)]))[::-1]
    found = above(x, count, (0, 50), np.random.default_rng(1))
    assert found is not None
    assert found[0].tolist() == np.flatnonzero(np.abs(x) >= sample[min(count, 49)]).tolist()


def test_the_largest_none_are_no_places_and_no_numbers() -> None:
    assert [each.tolist() for each in largest(np.ones(3), 0)] == [[], []]


def test_a_seed_is_read_by_its_low_63_bits() -> None:
    """A peer may send any; a compressor sends none below 0."""
    random_k = COMPRESSORS["random_k"](count=3)
    sent = random_k.compress(torch.arange(1.0, 10.0), np.random.default_rng(0))
    other = EncodedVector(9, {**sent.arrays, "seed": from_numpy(np.array([-2]))}, sent.meta)
    assert np.flatnonzero(random_k.decompress(other)).tolist() == random_subset(2**63 - 2, 3, 9).tolist()


def test_all_coordinates_are_the_identity() -> None:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(777))
    for name in ("identity", "top_k", "random_k"):
        compressor = COMPRESSORS[name](**({} if name == "identity" else {"fraction": 1.0}))
        assert torch.equal(compressor.decompress(compressor.compress(x, np.random.default_rng(0))), x)


def test_a_count_over_the_dimension_keeps_all() -> None:
    x = torch.tensor([1.0, -2.0])
    compressor = COMPRESSORS["top_k"](count=10)
    assert compressor.decompress(compressor.compress(x, np.random.default_rng(0))).tolist() == [1.0, -2.0]
    assert compressor.contraction(2) == 1
