"""Shares of data by hand: what is held out, what a file or a column gives to whom; raw files and standard inputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from netdfl.core.errors import DatasetError
from netdfl.core.rng import Streams
from netdfl.training.data.dataset import Dataset
from netdfl.training.data.examples import Samples
from netdfl.training.data.own import SharedData, with_test
from netdfl.training.data.sharing import share_out

STREAMS = Streams(2)
NAN, INF = float("nan"), float("inf")


def data(num: int, **more: Any) -> SharedData:
    train = Samples(torch.arange(float(num))[:, None], torch.arange(num))
    return SharedData(train=train, test=None, labels=np.arange(num), num_classes=num, num_given=num, **more)


@pytest.mark.parametrize(("share", "held"), [(0.3, 3), (0.04, 0), (0.05, 0), (0.06, 1), (0.95, 10), (0.94, 9)])
def test_a_share_is_held_out_to_the_nearest_number(share: float, held: int) -> None:
    if held in (0, 10):
        with pytest.raises(DatasetError, match=f"10 examples are too few to hold {share:.0%} of them out"):
            with_test(data(10), share, np.random.default_rng(0))
        return
    found = with_test(data(10), share, np.random.default_rng(0))
    assert found.test is not None
    assert (len(found.train), len(found.test)) == (10 - held, held)
    assert found.rows is not None
    assert found.rows.tolist() == sorted(found.rows.tolist())
    assert found.labels is not None
    assert found.labels.tolist() == found.rows.tolist()
    assert found.notes == [f"{held} of 10 examples are held out as the test set, as the data bring none"]
    assert with_test(found, share, np.random.default_rng(0)) is found


def part_of(kind: str, parts: Any, **params: Any) -> Any:
    return SimpleNamespace(kind=kind, own=False, params=params, build=lambda labels, num, streams: parts)


def test_numbers_of_the_data_as_given_are_found_where_they_lie_now() -> None:
    given = [np.array([0, 1, 5]), np.array([2, 4])]
    whole, notes = share_out(data(6), part_of("given", given, file="/a/b.json"), 2, STREAMS)
    assert [each.tolist() for each in whole] == [[0, 1, 5], [2, 4]]
    assert notes == ["partition given gives, of 6 training examples, 1 to nobody"]
    left = data(4, rows=np.array([5, 0, 2, 4]))
    object.__setattr__(left, "num_given", 6)
    some, notes = share_out(left, part_of("given", given, file="/a/b.json"), 2, STREAMS)
    assert [each.tolist() for each in some] == [[0, 1], [2, 3]]
    assert notes == [
        "partition b.json: numbers are those of the data as given; 1 of its 5 examples are in the test set or left out "
        "(client 0: 1)"
    ]
    object.__setattr__(left, "rows", np.array([5, 0, 1, 3]))
    with pytest.raises(ValueError, match=r"all examples of client 1 \(2\) are held out as the test set, or left out"):
        share_out(left, part_of("given", given, file="/a/b.json"), 2, STREAMS)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([[0, 1], [2, 3]], ""),
        ([[0, 1, 2], [2, 3]], "1 more than once"),
        ([[0], [2]], "2 to nobody"),
        ([[0, 0], [0, 3]], "1 more than once and 2 to nobody"),
    ],
)
@pytest.mark.parametrize("own", [False, True])
def test_a_partition_from_outside_that_overlaps_or_leaves_examples_out_is_noted(
    parts: list[list[int]], said: str, own: bool
) -> None:
    part = part_of("own:mine" if own else "given", [np.array(each) for each in parts], file="b.json")
    part.own = "partition" if own else ""
    expected = [f"partition {part.kind} gives, of 4 training examples, {said}"] if said else []
    assert share_out(data(4), part, 2, STREAMS)[1] == expected


def test_empty_cells_of_the_column_to_share_out_by_are_refused_in_the_rows_as_given() -> None:
    who = np.ma.masked_array(["a", "b", "c"], [False, True, False])
    parts = part_of("by_column", [np.array([0]), np.array([1])], column="who")
    with pytest.raises(DatasetError, match=r"partition: row 1 \(counted from 0\) is empty in column 'who'"):
        share_out(data(3, columns={"who": who}), parts, 2, STREAMS)
    later = data(3, columns={"who": who}, rows=np.array([0, 4, 5]))
    object.__setattr__(later, "num_given", 6)
    with pytest.raises(DatasetError, match=r"row 4 .* in column 'who': fill it"):
        share_out(later, parts, 2, STREAMS)
    found, notes = share_out(data(3, columns={"who": who}, drops=True), parts, 2, STREAMS)
    assert [each.tolist() for each in found] == [[0], [2]]
    assert notes == ["partition: examples whose who is empty are nobody's (1)"]
    for columns, said in (({"other": who}, "there is other"), ({}, r"there is none: give Datasets\(columns")):
        with pytest.raises(ValueError, match=f"the data have no column 'who'; {said}"):
            share_out(data(3, columns=columns), parts, 2, STREAMS)


# files


@pytest.mark.parametrize("shape", [(), (2,), (3, 2, 2)])
def test_inputs_are_standardized_by_one_number_or_one_for_each_channel(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 256, (4, *shape)).astype(np.uint8)
    y = np.arange(4)
    for channels in {1, *shape[:1]}:
        mean, std = tuple(0.1 * (k + 1) for k in range(channels)), tuple(0.5 + k for k in range(channels))
        axes = (-1,) + (1,) * max(len(shape) - 1, 0)
        for given, scale in ((x, 255.0), (x.astype(np.float32), 1.0)):
            found = Dataset(given, y, given, y, 4, mean, std).standardized(given)
            expected = (given / scale - np.reshape(mean, axes)) / np.reshape(std, axes)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
            assert (found.dtype, found.flags.c_contiguous) == (np.float32, True)
    for mean, std in (((0.0, 0.0), (1.0,)), ((0.0,), (1.0, 1.0)), ((0.0,), (0.0,)), ((0.0,), (-1.0,))):
        if len(shape) == 1 and 0.0 < min(std):
            continue
        with pytest.raises(DatasetError, match="do not fit inputs of shape"):
            Dataset(x, y, x, y, 4, mean, std)
