"""Partitions: exact covers, equal sizes, and the laws that they are named after."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.rng import Streams
from netdfl.training.data.partitions import PARTITIONS, label_counts

BALANCED = np.repeat(np.arange(10), 100)
EQUAL_SIZES = ("iid", "dirichlet", "dirichlet_per_class", "shards")

DRAWN = [name for name in PARTITIONS if name not in ("by_column", "given")]


def assert_exact(parts: list[np.ndarray], num_samples: int, num_clients: int) -> None:
    assert len(parts) == num_clients
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(num_samples))
    for part in parts:
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()


@given(
    name=st.sampled_from(EQUAL_SIZES[:3]),
    labels=st.lists(st.integers(0, 6), min_size=1, max_size=80),
    num_clients=st.integers(1, 30),
    alpha=st.sampled_from([0.001, 0.05, 0.3, 1.0, 100.0]),
    seed=st.integers(0, 2**32),
)
def test_no_sample_is_lost_or_doubled_and_sizes_are_equal(name, labels, num_clients, alpha, seed) -> None:
    num_clients = min(num_clients, len(labels))
    params = {} if name == "iid" else {"alpha": alpha}
    parts = PARTITIONS[name](np.array(labels), num_clients, Streams(seed), **params)
    assert_exact(parts, len(labels), num_clients)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any),
    num_clients=st.integers(1, 12),
    per_client=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_pathological_and_shards_cover_every_sample_once(counts, num_clients, per_client, seed) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    for name, key in (("pathological", "classes_per_client"), ("shards", "shards_per_client")):
        try:
            parts = PARTITIONS[name](labels, num_clients, Streams(seed), **{key: per_client})
        except ValueError:
            continue
        assert_exact(parts, len(labels), num_clients)
        if name == "pathological":
            assert (np.count_nonzero(label_counts(labels, parts, len(counts)), axis=1) <= per_client).all()


@pytest.mark.parametrize("name", DRAWN)
def test_same_seed_gives_the_same_partition_and_another_seed_another(name: str) -> None:
    first, again, other = (PARTITIONS[name](BALANCED, 10, Streams(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", DRAWN)
def test_paper_scale_is_exact(name: str) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6000))
    parts = PARTITIONS[name](labels, 100, Streams(3))
    assert_exact(parts, 60_000, 100)
    assert {len(part) for part in parts} == {600}


def test_dirichlet_mixes_have_the_variance_of_the_law() -> None:
    """With ample stock, client shares follow Dir(alpha): the variance of a share is p(1 - p) / (C alpha + 1)."""
    labels = np.repeat(np.arange(4), 25_000)
    counts = label_counts(labels, PARTITIONS["dirichlet"](labels, 1000, Streams(5), alpha=2.0), 4)
    shares = counts / counts.sum(axis=1, keepdims=True)
    p, size = 0.25, 100
    expected = p * (1 - p) / (4 * 2.0 + 1) * (1 - 1 / size) + p * (1 - p) / size
    assert shares.var(axis=0).mean() == pytest.approx(expected, rel=0.1)


def test_small_alpha_concentrates_and_large_alpha_evens_out() -> None:
    for name in ("dirichlet", "dirichlet_per_class"):
        top = {}
        for alpha in (0.01, 1000.0):
            counts = label_counts(BALANCED, PARTITIONS[name](BALANCED, 10, Streams(0), alpha=alpha), 10)
            top[alpha] = counts.max(axis=1).mean() / 100
        assert top[0.01] > 0.5, name
        assert top[1000.0] < 0.2, name


def test_one_class_each_is_a_permutation() -> None:
    counts = label_counts(BALANCED, PARTITIONS["pathological"](BALANCED, 10, Streams(0), classes_per_client=1), 10)
    assert np.array_equal(np.sort(counts, axis=1)[:, -1], np.full(10, 100))
    assert np.array_equal(counts.max(axis=0), np.full(10, 100))


def test_pathological_gives_exactly_the_classes_asked_for() -> None:
    counts = label_counts(BALANCED, PARTITIONS["pathological"](BALANCED, 10, Streams(0), classes_per_client=3), 10)
    assert np.array_equal(np.count_nonzero(counts, axis=1), np.full(10, 3))


def test_labels_need_not_be_consecutive() -> None:
    labels = np.array([7, 7, 3, 3, 100, 100])
    for name in DRAWN:
        assert_exact(PARTITIONS[name](labels, 3, Streams(0)), 6, 3)


@pytest.mark.parametrize(
    ("name", "num_clients", "params", "message"),
    [
        ("iid", 1001, {}, "1001 clients can't share 1000 samples"),
        ("dirichlet", 1001, {}, "use at most 1000 clients"),
        ("dirichlet_per_class", 1001, {}, "use at most 1000 clients"),
        ("pathological", 1001, {}, "use at most 1000 clients"),
        ("pathological", 20, {"classes_per_client": 11}, "the data has 10 classes: use at most 10"),
        ("pathological", 3, {"classes_per_client": 2}, "use at least 4 classes per client"),
        ("shards", 600, {"shards_per_client": 2}, "need 1200 samples"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(name, num_clients, params, message) -> None:
    with pytest.raises(ValueError, match=message):
        PARTITIONS[name](BALANCED, num_clients, Streams(0), **params)


def test_a_client_without_samples_is_refused() -> None:
    labels = np.array([0, 1, 1, 1])
    with pytest.raises(ValueError, match="would get no sample"):
        PARTITIONS["pathological"](labels, 4, Streams(0), classes_per_client=1)
