"""How examples are dealt to clients: each step by itself, against its law or its sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from netdfl.training.data.partitions import (
    _balanced,
    _class_holders,
    _corner_fill,
    _dealing_order,
    _draw,
    _draw_classes,
    _equal_sizes,
    _log_gamma,
    _rounded,
)


def test_dealing_order_is_that_of_uniform_picks_among_clients_with_room() -> None:
    """Sizes 1 and 2: the orders 011, 101, 110 have chances 1/2, 1/4, 1/4."""
    rng = np.random.default_rng(0)
    seen = ["".join(map(str, _dealing_order(rng, np.array([1, 2])))) for _ in range(8000)]
    shares = {order: seen.count(order) / len(seen) for order in ("011", "101", "110")}
    assert shares == pytest.approx({"011": 0.5, "101": 0.25, "110": 0.25}, abs=0.03)


def test_equal_sizes_spread_the_remainder() -> None:
    assert _equal_sizes(11, 4).tolist() == [3, 3, 3, 2]


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
