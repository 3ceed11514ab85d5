"""Examples of a user's that can't be read are named by place, with what they are and what would do."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from netdfl.core.errors import DatasetError
from netdfl.training.data.own import Datasets, adapted, shared
from netdfl.training.data.reading import is_column, is_numbers, kind_of

GOOD = (torch.zeros(2), 1)
Rows = namedtuple("Rows", "inputs targets")


class Own:
    """What has a length and gives items; an exception among them is raised."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: int) -> Any:
        if isinstance(self.items[place], Exception):
            raise self.items[place]
        return self.items[place]


@pytest.mark.parametrize(
    ("items", "said"),
    [
        (
            (GOOD, ZeroDivisionError("by mistake")),
            r"train\[1\] can't be read .*: ZeroDivisionError: by mistake",
        ),
        (({"x": 1, "y": 2}, GOOD), r"train\[0\] .*an example is a mapping with x, y: give pairs"),
        ((GOOD, GOOD, torch.zeros(3)), r"train\[2\] .*an example is float32 \(3,\): give pairs"),
        ((GOOD, (torch.zeros(2),)), r"train\[1\] .*: give pairs"),
        ((GOOD, [1]), r"train\[1\] .*an example is a list of 1: give pairs"),
        ((GOOD, 7), r"train\[1\] .*an example is int: give pairs"),
        ((GOOD, (torch.zeros(3), 1)), "give all of them one shape, cut or filled up"),
        ((), "train has no examples|train is empty"),
    ],
)
def test_what_can_not_be_read_is_named_by_its_place(items: tuple[Any, ...], said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        shared(Datasets(train=Own(*items)))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.zeros(2, 3), "float32 (2, 3)"),
        ((torch.zeros(2), torch.zeros(1, dtype=torch.int64)), "(float32 (2,), int64 (1,))"),
        ({"a": torch.zeros(2)}, "{a: float32 (2,)}"),
        ([1, 2, 3], "a list of 3"),
        ("text", "str"),
        (None, "NoneType"),
    ],
)
def test_what_a_value_is_is_said_in_a_few_words(value: Any, said: str) -> None:
    assert kind_of(value) == said


@pytest.mark.parametrize(
    ("column", "numbers", "array"),
    [
        ([1, 2], True, False),
        ([[1.5], [2.5]], True, False),
        ([["a"]], False, False),
        ([[], [1]], False, False),
        ([], False, False),
        (3, True, False),
        (np.zeros(2), False, True),
        (torch.zeros(2), False, True),
        ("text", False, False),
    ],
)
def test_lists_of_numbers_and_arrays_are_told_apart(column: Any, numbers: bool, array: bool) -> None:
    assert (is_numbers(column), is_column(column)) == (numbers, array)


X, Y = torch.zeros(4, 2), torch.tensor([0, 1, 2, 1])


@pytest.mark.parametrize(
    ("found", "num", "has_test"),
    [
        ((X, Y), 4, False),
        (((X, Y), (X, Y)), 4, True),
        ([Own(GOOD), Own(GOOD)], 1, True),
        ({"train": (X, Y)}, 4, False),
        ({"train": (X, Y), "test": (X, Y)}, 4, True),
        ({"train": (X, Y), "validation": (X, Y)}, 4, True),
        (Own(GOOD, GOOD), 2, False),
        (([[1.0], [2.0]], [0, 1]), 2, False),
        (Rows(X, Y), 4, False),
    ],
)
def test_each_form_that_a_function_may_return_is_data_with_or_without_a_test_set(
    found: Any, num: int, has_test: bool
) -> None:
    given = adapted(found)
    assert isinstance(given, Datasets)
    assert (given.test is not None) == has_test
    assert len(shared(given).train) == num


@pytest.mark.parametrize("found", [None, 3, "text", (), (X, Y, Y)])
def test_what_is_no_data_is_refused(found: Any) -> None:
    with pytest.raises(TypeError, match="or \\(train, test\\) of these"):
        adapted(found)
