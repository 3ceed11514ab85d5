"""The steps of a partition worked out by hand, and the last case that each of its bounds lets through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netdfl.core.rng import Streams
from netdfl.training.data.partitions import (
    PARTITIONS,
    _balanced,
    _class_holders,
    _corner_fill,
    _dealing_order,
    _draw,
    _draw_classes,
    _log_gamma,
    _rounded,
    label_counts,
)

STREAMS = Streams(3)


class Fixed:
    """A generator whose whole numbers are given."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def integers(self, most: int, size: int) -> np.ndarray:
        assert (most, size) == (2**32, len(self.numbers))
        return np.array(self.numbers)


def test_a_class_is_drawn_where_the_cumulative_mix_passes_the_number() -> None:
    quarter = 2**30
    mixes = np.log(np.array([[1.0, 2.0, 1.0], [4.0, 4.0, 8.0]]))
    numbers = [0, quarter - 1, quarter, 3 * quarter - 1, 3 * quarter, 2**32 - 1]
    first: Any = _draw(Fixed(*numbers), mixes, np.zeros(6, np.int64))  # type: ignore[arg-type]
    assert first.tolist() == [0, 0, 1, 1, 2, 2]
    second: Any = _draw(Fixed(*numbers), mixes, np.ones(6, np.int64))  # type: ignore[arg-type]
    assert second.tolist() == [0, 0, 1, 2, 2, 2]
    without = np.where([[True, False, True]], mixes[:1], -np.inf)
    some: Any = _draw(Fixed(0, 2**31 - 1, 2**31), without, np.zeros(3, np.int64))  # type: ignore[arg-type]
    assert some.tolist() == [0, 0, 2]


def test_classes_are_drawn_from_the_mix_until_they_run_out_and_then_from_the_others() -> None:
    rng, wanted = np.random.default_rng(0), np.log(np.array([[0.999, 0.001, 1e-300], [1e-300, 0.5, 0.5]]))
    clients = np.array([0, 1] * 300)
    drawn = _draw_classes(rng, wanted, clients, np.array([200, 100, 300]))
    assert np.bincount(drawn).tolist() == [200, 100, 300]
    ours = drawn[clients == 0]
    assert np.count_nonzero(ours[:200] == 0) > 190
    assert set(ours[-50:].tolist()) == {2}, "nothing else is left"
    theirs = drawn[clients == 1][:100]
    assert 30 < np.count_nonzero(theirs == 1) < 70
    assert not (theirs == 0).any()


@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_logarithms_of_gamma_numbers_have_the_mean_and_the_variance_of_their_law(alpha: float) -> None:
    drawn = np.exp(_log_gamma(np.random.default_rng(0), alpha, (200, 200)))
    assert drawn.shape == (200, 200)
    assert drawn.mean() == pytest.approx(alpha, rel=0.05)
    assert drawn.var() == pytest.approx(alpha, rel=0.1)
    assert np.isfinite(_log_gamma(np.random.default_rng(0), 1e-3, (50, 50))).all()


def test_clients_of_any_sizes_are_dealt_as_many_as_they_hold() -> None:
    sizes = np.array([0, 3, 1, 5])
    order = _dealing_order(np.random.default_rng(0), sizes)
    assert np.bincount(order, minlength=4).tolist() == sizes.tolist()


@pytest.mark.parametrize("spread", [0.1, 3.0, 60.0])
def test_a_balanced_table_has_its_sums_and_is_nowhere_one_off_the_scaled_shares(spread: float) -> None:
    rng = np.random.default_rng(1)
    rows, columns = np.array([30, 12, 18, 40]), np.array([25, 25, 25, 25])
    logs = spread * rng.standard_normal((4, 4))
    table = _balanced(rng, logs, rows, columns)
    assert table.sum(1).tolist() == rows.tolist()
    assert table.sum(0).tolist() == columns.tolist()
    assert table.min() >= 0
    if spread < 50:  # beyond, scaling has not settled
        scaled = logs
        for _ in range(5000):
            scaled = scaled + np.log(columns) - np.logaddexp.reduce(scaled, axis=0)
            scaled = scaled + (np.log(rows) - np.logaddexp.reduce(scaled, axis=1))[:, None]
        assert np.abs(table - np.exp(scaled)).max() < 1.6


def test_what_is_left_is_filled_in_from_corner_to_corner_and_rounded_for_the_neediest() -> None:
    filled = _corner_fill(np.array([2.0, 0.0, 3.0]), np.array([1.0, 4.0]))
    assert filled.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 3.0]]
    shares = np.array([[1.5, 2.5, 0.0], [1.5, 0.5, 1.0], [0.25, 1.0, 0.75]])
    table = _rounded(np.random.default_rng(0), shares, np.array([4, 3, 2]), np.array([3, 4, 2]))
    assert table.sum(1).tolist() == [4, 3, 2]
    assert table.sum(0).tolist() == [3, 4, 2]
    assert ((table == np.floor(shares)) | (table == np.floor(shares) + 1)).all()


@pytest.mark.parametrize(("clients", "each", "classes"), [(5, 2, 10), (10, 3, 10), (4, 4, 4), (7, 2, 5), (1, 3, 3)])
def test_every_class_has_as_many_holders_as_any_other_or_one_more(clients: int, each: int, classes: int) -> None:
    holders = _class_holders(np.random.default_rng(0), clients, each, classes)
    sizes = [len(held) for held in holders]
    assert sum(sizes) == clients * each
    assert max(sizes) - min(sizes) <= 1
    assert all(len(set(held)) == len(held) for held in holders)
    with pytest.raises(ValueError, match=f"the data has {classes} classes: use at most {classes}"):
        _class_holders(np.random.default_rng(0), clients, classes + 1, classes)
    if clients > 1 and clients * each == classes:
        least = -(-classes // (clients - 1))
        with pytest.raises(ValueError, match=f"use at least {least} classes per client"):
            _class_holders(np.random.default_rng(0), clients - 1, each, classes)


def test_as_many_clients_as_examples_are_the_most() -> None:
    labels = np.array([0, 1, 2, 0, 1, 2])
    for name in ("iid", "dirichlet", "dirichlet_per_class"):
        assert [len(part) for part in PARTITIONS[name](labels, 6, STREAMS)] == [1] * 6
        with pytest.raises(ValueError, match="7 clients can't share 6 samples: use at most 6 clients"):
            PARTITIONS[name](labels, 7, STREAMS)
    assert [len(part) for part in PARTITIONS["pathological"](labels, 6, STREAMS, classes_per_client=1)] == [1] * 6
    assert [len(part) for part in PARTITIONS["shards"](labels, 3, STREAMS)] == [2] * 3
    with pytest.raises(ValueError, match="3 clients with 3 shards each need 9 samples, the data has 6"):
        PARTITIONS["shards"](labels, 3, STREAMS, shards_per_client=3)


def test_shards_are_cut_from_examples_in_the_order_of_their_labels() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(6), 10))
    counts = label_counts(labels, PARTITIONS["shards"](labels, 3, STREAMS), 6)
    assert counts.shape == (3, 6)
    assert ((counts == 0) | (counts == 10)).all()


def test_values_of_a_column_are_dealt_largest_first_to_who_has_fewest() -> None:
    values = np.repeat(np.array(["a", "b", "c", "d", "e"]), [10, 8, 5, 4, 1])
    parts = PARTITIONS["by_column"](values, 3, STREAMS, column="who")
    held = sorted(sorted(set(values[part].tolist())) for part in parts)
    assert held == [["a"], ["b", "e"], ["c", "d"]]
    assert len(PARTITIONS["by_column"](values, 5, STREAMS, column="who")) == 5
    with pytest.raises(ValueError, match="column 'who' has 5 values for 6 clients: use at most 5 clients"):
        PARTITIONS["by_column"](values, 6, STREAMS, column="who")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ([[0, 1], [5]], ""),
        ([[0], [0]], ""),
        ([[0, 1], []], "the list of client 1 is none of numbers from 0 to 5"),
        ([[0, 6], [1]], "the list of client 0 is none of numbers"),
        ([[-1], [1]], "the list of client 0 is none of numbers"),
        ([[0.0], [1]], "the list of client 0 is none of numbers"),
        ([[True], [1]], "the list of client 0 is none of numbers"),
        ([[0], [[1]]], "the list of client 1 is none of numbers"),
        ([0, 1], "the list of client 0 is none of numbers"),
        ([[0]], "has 1 lists for 2 clients: give one for each"),
        ([[0], [1], [2]], "has 3 lists for 2 clients"),
        (7, "is no list of lists of numbers"),
    ],
)
def test_a_file_of_lists_names_examples_that_there_are(text: Any, said: str, tmp_path: Path) -> None:
    file = tmp_path / "parts.json"
    file.write_text(json.dumps(text))
    labels = np.zeros(6, np.int64)
    if said:
        with pytest.raises(ValueError, match=said):
            PARTITIONS["given"](labels, 2, STREAMS, file=str(file))
    else:
        assert [part.tolist() for part in PARTITIONS["given"](labels, 2, STREAMS, file=str(file))] == text
