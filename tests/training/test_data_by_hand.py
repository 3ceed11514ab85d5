"""Columns, tables, examples and shares of data by hand: what each cell, row and place comes to, at the edges too."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from netdfl.core.errors import DatasetError, InputError
from netdfl.core.rng import Streams
from netdfl.training.data import reading
from netdfl.training.data.columns import Columns, columns_of, is_scalar, of_array
from netdfl.training.data.examples import ReadSamples, Samples, form, in_batches, tensors
from netdfl.training.data.finite import spoiled_in
from netdfl.training.data.own import Datasets, adapted, shared
from netdfl.training.data.reading import from_arrays, is_numbers, kept, one_by_one
from netdfl.training.data.tables import ColumnRequest, from_table, refuse_empty

STREAMS = Streams(2)
NAN, INF = float("nan"), float("inf")

# columns


@pytest.mark.parametrize(
    ("cells", "values", "empty", "unlike"),
    [
        (np.array([1, 2]), [1, 2], [0, 0], ""),
        (np.array([True, False]), [1, 0], [0, 0], ""),
        (np.array([1.5, NAN]), [1.5, NAN], [0, 1], ""),
        (np.array([NAN, NAN]), None, [1, 1], "nothing in any row"),
        (np.ma.masked_array([1, 2], [True, True]), None, [1, 1], "nothing in any row"),
        (np.ma.masked_array([1, 2], [True, False]), None, [1, 0], ""),
        (np.array([1, None, 2.5], object), [1.0, 0.0, 2.5], [0, 1, 0], ""),
        (np.array([1, None, 3], object), [1, 0, 3], [0, 1, 0], ""),
        (np.array([Decimal("0.5"), NAN], object), [0.5, 0.0], [0, 1], ""),
        (np.array([None, None], object), None, [1, 1], "nothing in any row"),
        (np.array([1, "a", None], object), None, [0, 0, 1], "text, 'a' in row 1"),
        (np.array([None, b"xy"], object), None, [1, 0], "text, \"b'xy'\" in row 1"),
        (np.array(["p", "q"]), None, [0, 0], "text, 'p' in row 0"),
        (np.array([None, datetime.date(2020, 1, 2)], object), None, [1, 0], "dates, '2020-01-02' in row 1"),
        (np.array(["2020-01-02"], "datetime64[D]"), None, [0], "dates, '2020-01-02' in row 0"),
        (np.array([1j]), None, [0], "complex128, '1j' in row 0"),
        (np.zeros((2, 3)), None, [0, 0], "arrays of shape (3,)"),
    ],
)
def test_a_column_is_of_numbers_or_says_why_not(cells: Any, values: Any, empty: list[int], unlike: str) -> None:
    found = of_array(cells)
    assert (found.unlike, found.unsure) == (unlike, "")
    rows = found.empty if found.empty.ndim == 1 else found.empty[:, 0]
    assert rows.astype(int).tolist() == empty
    if values is not None:
        np.testing.assert_array_equal(found.values, values)
    assert isinstance(found.only(None), np.ma.MaskedArray) is any(empty)
    assert len(found.only(np.array([0]))) == 1


@pytest.mark.parametrize(
    ("cells", "values", "unlike", "unsure"),
    [
        (["1", " 2 ", "-3", "+4"], [1, 2, -3, 4], "", ""),
        (["1.5", "2.", ".5", "1e3", "-1E-2"], [1.5, 2.0, 0.5, 1000.0, -0.01], "", ""),
        (["inf", "-Infinity", "1"], [INF, -INF, 1.0], "", ""),
        (["1", "", "NA", " n/a ", "?", "nan", "NULL", "None", "-", "3"], [1, *[0] * 8, 3], "", ""),
        (["1,5", "2"], [1.5, 2.0], "", ""),
        (["1.234,5", "0,25"], [1234.5, 0.25], "", ""),
        (["1,234", "5,678"], None, "", "'1,234', which may be 1234 or 1.234"),
        (["1,234", "0,678"], [1.234, 0.678], "", ""),
        (["1,234", "x"], None, "text, '1,234' in row 0", ""),
        (["1", "x"], None, "text, 'x' in row 1", ""),
        (["", "1", "1a"], None, "text, '1a' in row 2", ""),
        (["12345678901234567890"], [12345678901234567890.0], "", ""),
        (["123456789012345678"], [123456789012345678], "", ""),
        (["1.0", "2"], [1.0, 2.0], "", ""),
    ],
)
def test_text_of_a_file_says_numbers_or_its_first_cell_that_does_not(
    cells: list[str], values: Any, unlike: str, unsure: str
) -> None:
    file = Columns({"a": np.array(cells)}, "data.csv", as_text=True)
    assert len(file) == len(cells)
    found = columns_of(file)["a"]
    assert found.unlike == unlike
    assert found.unsure.startswith(unsure) if unsure else not found.unsure
    if values is not None:
        assert found.values.tolist() == values
        assert found.values.dtype.kind == ("i" if all(isinstance(each, int) for each in values) else "f")
    plain = columns_of(Columns({"a": np.array(cells)}, "data.parquet"))["a"]
    assert plain.unlike, "text stays text where a file has types"
    assert columns_of([1, 2]) == {}


def test_another_column_of_the_file_may_show_that_commas_are_decimal() -> None:
    both = {"a": np.array(["1,234", "5,678"]), "b": np.array(["0,5", "1,5"])}
    found = columns_of(Columns(both, "data.csv", as_text=True))
    assert found["a"].values.tolist() == [1.234, 5.678]
    assert not found["a"].unsure
    assert len(Columns({}, "none.csv")) == 0
    assert [is_scalar(value) for value in (None, 1, "a", 0.5, True, [1], np.zeros(1))] == [True] * 5 + [False] * 2


# tables


def table(**columns: Any) -> dict[str, Any]:
    return {name: of_array(np.asarray(cells, object)) for name, cells in columns.items()}


def test_a_table_is_predicted_from_its_numbers_and_says_from_which() -> None:
    found = from_table(table(a=[1, 2], b=["x", "y"], y=[0, 1], c=[0.5, 1.5]), ColumnRequest("y", None), "train")
    assert found.examples.take(torch.arange(2))[0].tolist() == [[1.0, 0.5], [2.0, 1.5]]
    assert found.examples.take(torch.arange(2))[1].tolist() == [0, 1]
    assert found.rows is None
    assert list(found.notes) == ["train: y is predicted from a, c; left out: b (text, 'x' in row 0)"]
    some = from_table(table(a=[1, 2], y=[0, 1], c=[0.5, 1.5]), ColumnRequest("y", ["c"]), "train")
    assert some.examples.take(torch.arange(2))[0].tolist() == [[0.5], [1.5]]
    assert not some.notes
    many = {f"c{k}": of_array(np.arange(2)) for k in range(14)}
    note = from_table(many, ColumnRequest("c0", None), "train").notes[0]
    assert note.endswith("c11, c12 and 1 more")
    del many["c13"]
    assert from_table(many, ColumnRequest("c0", None), "train").notes[0].endswith("c11, c12")


def test_words_of_a_target_are_classes_in_their_order_and_unknown_ones_are_pointed_at() -> None:
    words = table(a=[1, 2, 3], y=["no", "yes", "no"])
    found = from_table(words, ColumnRequest("y", ["a"], classes=["maybe", "no", "yes"]), "train")
    assert found.examples.take(torch.arange(3))[1].tolist() == [1, 2, 1]
    assert not found.notes
    (note,) = from_table(words, ColumnRequest("y", ["a"], classes=["NA", "no", "yes"]), "train").notes
    assert note.startswith("train: y has the class 'NA': where that says that nothing is known")
    big = {"a": of_array(np.arange(2)), "y": of_array(np.array([1, 2], np.uint16))}
    assert from_table(big, ColumnRequest("y", None), "train").examples.take(torch.arange(2))[1].dtype == torch.int64


@pytest.mark.parametrize(("missing", "rows"), [("drop", [0, 3]), ("mean", [0, 1, 3])])
def test_rows_with_holes_are_left_out_or_filled(missing: Any, rows: list[int]) -> None:
    holes = table(a=[1, None, 3, 6], y=[0, 1, None if missing == "drop" else 1, 1])
    if missing == "mean":
        holes = table(a=[1, None, 6], y=[0, 1, 1])
        found = from_table(holes, ColumnRequest("y", ["a"], "mean"), "train")
        assert found.examples.take(torch.arange(3))[0].flatten().tolist() == [1.0, 3.5, 6.0]
        assert list(found.notes) == ["train: empty cells of a have the mean of their column"]
        assert not from_table(table(a=[1, 2], y=[0, 1]), ColumnRequest("y", ["a"], "mean"), "train").notes
        return
    found = from_table(holes, ColumnRequest("y", ["a"], "drop"), "train")
    assert found.rows is not None
    assert found.rows.tolist() == rows
    assert list(found.notes) == ["train: 2 rows with empty cells left out"]
    one = from_table(table(a=[1, None], y=[0, 1]), ColumnRequest("y", ["a"], "drop"), "train")
    assert list(one.notes) == ["train: 1 row with empty cells left out"]


def test_the_first_empty_cell_is_named_and_how_many_more_there_are() -> None:
    for empty, said in (
        ([0, 1, 0, 0], r"what: row 1 \(counted from 0\) is empty in column 'c': fill it"),
        ([0, 0, 1, 1], r"what: row 2 .* in column 'c', and so are 1 more of 4: fill it"),
    ):
        with pytest.raises(DatasetError, match=said):
            refuse_empty(np.array(empty, bool), "c", "what", "fill it")
    refuse_empty(np.zeros(3, bool), "c", "what", "fill it")


# examples


def test_values_of_any_kind_become_tensors_and_what_is_no_number_is_refused() -> None:
    for value, kind, found in (
        ([1, 2], torch.int64, [1, 2]),
        ((0.5, 1), torch.float32, [0.5, 1.0]),
        (np.float64(2.0), torch.float32, 2.0),
        (np.array([1, 2], np.int16), torch.int64, [1, 2]),
        (np.array([True]), torch.bool, [True]),
        (np.array([7], np.uint8), torch.uint8, [7]),
        (torch.ones(1, dtype=torch.bfloat16), torch.float32, [1.0]),
    ):
        made = tensors(value)
        assert (made.dtype, made.tolist()) == (kind, found)
    assert form(tensors({"a": [np.zeros(2), 1], "b": 2})) == "{a: (float32 (2,), int64 ()), b: int64 ()}"
    for wrong in ("abc", b"x", None, [1, "a"], {"a": None}):
        with pytest.raises(TypeError, match="is no number: give numbers, of classes from 0 on"):
            tensors(wrong)
    locked = np.arange(2.0)
    locked.flags.writeable = False
    assert tensors(locked).tolist() == [0.0, 1.0]


def test_examples_come_in_minibatches_of_which_the_last_may_be_short() -> None:
    samples = Samples(torch.arange(5), torch.arange(5))
    assert [x.tolist() for x, _ in in_batches(samples, 2)] == [[0, 1], [2, 3], [4]]
    assert [x.tolist() for x, _ in in_batches(samples, 5)] == [[0, 1, 2, 3, 4]]
    assert list(in_batches(samples.only(np.array([], np.int64)), 2)) == []


def test_what_is_small_and_the_same_each_time_is_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[int]()

    def read(place: int) -> tuple[Tensor, Tensor]:
        calls.append(place)
        return torch.full((4,), float(place)), torch.tensor(place)

    found = ReadSamples(read, np.arange(10))
    nbytes = 10 * (4 * 4 + 8)
    for most, held in ((nbytes, True), (nbytes - 1, False)):
        monkeypatch.setattr(reading, "MOST_IN_MEMORY", most)
        assert isinstance(kept(found), Samples) is held
    monkeypatch.setattr(reading, "MOST_IN_MEMORY", nbytes)
    for draw in (torch.rand, lambda num: torch.from_numpy(np.random.rand(num))):
        noisy = ReadSamples(lambda place, draw=draw: (draw(4).float(), torch.tensor(place)), np.arange(10))  # type: ignore[misc]
        assert isinstance(kept(noisy), ReadSamples)
    for one, num in ((3, 4), (37, 100)):
        for draw in (lambda: torch.rand(()), np.random.rand, random.random):

            def late(place: int, one: int = one, draw: Any = draw) -> tuple[Tensor, Tensor]:
                return torch.full((4,), float(draw()) if place == one else 0.0), torch.tensor(0)

            assert isinstance(kept(ReadSamples(late, np.arange(num))), ReadSamples)
    own = np.random.default_rng(0)  # whose draws nobody else sees
    far = ReadSamples(lambda place: (torch.tensor(own.random() * (place > 90)), torch.tensor(0)), np.arange(100))
    assert isinstance(kept(far), ReadSamples)


def test_arrays_have_one_length_and_the_targets_last() -> None:
    made = from_arrays((np.zeros((3, 2)), np.ones((3, 4)), [0, 1, 2]), "train").examples
    x, y = made.take(torch.arange(3))
    assert ([tuple(each.shape) for each in x], y.tolist()) == ([(3, 2), (3, 4)], [0, 1, 2])
    alone = from_arrays(([np.ones((3, 2))], [0, 1, 2]), "train").examples.take(torch.arange(3))[0]
    assert [each.tolist() for each in alone] == [[[1.0, 1.0]] * 3]
    with pytest.raises(DatasetError, match="train has 3 inputs and 2 targets: give as many of both"):
        from_arrays((np.zeros((3, 2)), np.zeros(2)), "train")
    assert [is_numbers(each) for each in ([1], [[0.5]], [], 1, ["a"], np.ones(1), [[]])] == [
        *(True, True, False, True, False, False, False),
    ]
    for item, said in (
        ({"a": 1}, r"an example is a mapping with a: give pairs"),
        ((1,), r"an example is \(int\): give pairs"),
        (torch.ones(2), r"an example is float32 \(2,\): give pairs"),
    ):
        with pytest.raises(TypeError, match=said):
            one_by_one([item], "train")
    with pytest.raises(DatasetError, match="train has no examples: give at least one"):
        one_by_one([], "train")
    three = one_by_one([(np.ones(2), np.zeros(1), 0)], "train").examples.take(torch.arange(1))
    assert ([each.tolist() for each in three[0]], three[1].tolist()) == ([[[1.0, 1.0]], [[0.0]]], [0])


def test_the_first_example_with_nan_and_the_first_with_infinity_are_named() -> None:
    x = torch.zeros(4, 2)
    x[2, 1], x[3, 0], x[1, 0] = NAN, NAN, INF
    y = torch.tensor([0.0, 0.0, 0.0, NAN])
    found = list(spoiled_in(Samples({"a": torch.zeros(4), "b": x}, y), "train"))
    assert [(each.name, each.holds) for each in found] == [
        *(("train[2]", "NaN in its input"), ("train[1]", "infinity in its input"), ("train[3]", "NaN in its target")),
    ]
    assert [len(each.example) for each in found] == [1, 1, 1]
    rows = [each.name for each in spoiled_in(Samples(x, y), "train", np.array([4, 6, 8, 9]))]
    assert rows == ["train[8]", "train[6]", "train[9]"]
    assert not list(spoiled_in(Samples(torch.full((2, 9), 3e38), torch.zeros(2).long()), "train"))


# what is given


def test_what_is_given_is_looked_at_before_it_is_read() -> None:
    for wrong, said in (
        ({"clients": []}, "Datasets: clients"),
        ({"clients": "ab"}, "Datasets: clients"),
        ({"train": 1, "client_tests": []}, "Datasets: client_tests"),
        ({"train": 1, "inputs": "a"}, "Datasets: inputs"),
        ({"train": 1, "inputs": ["a", 1]}, "Datasets: inputs"),
        ({"train": 1, "target": 3}, "Datasets: target"),
        ({"train": 1, "missing": "ignore"}, "Datasets: missing"),
        ({"train": 1, "columns": ["a"]}, "Datasets: columns"),
        ({"train": 1, "num_classes": 0}, "Datasets: num_classes"),
        ({"train": 1, "num_classes": 2.0}, "Datasets: num_classes"),
    ):
        with pytest.raises(InputError, match=said):
            Datasets(**wrong)  # type: ignore[arg-type]
    assert Datasets(num_classes=1, inputs=("a",), clients=(1,)).missing == "refuse"
    pair = (np.zeros((4, 2)), np.arange(4) % 2)
    for neither in (Datasets(), Datasets(train=pair, clients=[pair])):
        with pytest.raises(DatasetError, match="needs either train, to be shared out, or clients"):
            shared(neither)


def test_forms_of_data_are_told_apart() -> None:
    pair = (np.zeros((4, 2)), np.arange(4) % 2)
    assert adapted(pair).train is pair  # type: ignore[union-attr]
    both = adapted((pair, pair))
    assert (both.train, both.test) == (pair, pair)  # type: ignore[union-attr]
    named = adapted({"train": 1, "validation": 2})
    assert (named.train, named.test) == (1, 2)  # type: ignore[union-attr]
    assert adapted({"train": 1, "validation": 2, "test": 3}).test == 3  # type: ignore[union-attr]
    lists = ([[1.0], [2.0]], [0, 1])
    assert adapted(lists).train is lists  # type: ignore[union-attr]
    items = [(1.0, 0), (2.0, 1), (3.0, 0)]
    assert adapted(items).train is items  # type: ignore[union-attr]
    for wrong in ("text", 5, (), (pair, pair, pair), None):
        with pytest.raises(TypeError, match=r"a torch Dataset, arrays .*, or \(train, test\) of these"):
            adapted(wrong)


def test_each_clients_tests_are_as_many_as_clients_and_serve_all_where_there_is_no_other_test() -> None:
    def part(size: int) -> tuple[Any, Any]:
        return np.full((size, 2), float(size)), np.arange(size) % 2

    found = shared(Datasets(clients=[part(3), part(5)], client_tests=[part(1), part(2)]))
    assert [each.tolist() for each in found.parts or []] == [[0, 1, 2], [3, 4, 5, 6, 7]]
    assert found.test is not None
    assert len(found.test) == 3
    assert [len(each) for each in found.client_tests or []] == [1, 2]
    with pytest.raises(DatasetError, match="has 2 clients and 1 client_tests: give one for each client"):
        shared(Datasets(clients=[part(3), part(5)], client_tests=[part(1)]))
    by_hand = shared(Datasets(train=part(4), columns={"who": ["a", "b", "a", "b"]}))
    assert by_hand.columns["who"].tolist() == ["a", "b", "a", "b"]
    for values, said in (("a", "give one value for each example"), (["a"], "has 1 values for 4 examples")):
        with pytest.raises(DatasetError, match=said):
            shared(Datasets(train=part(4), columns={"who": values}))
    assert shared(Datasets(train=part(4), num_classes=7)).num_classes == 7
    assert shared(Datasets(train=part(4), test=(np.zeros((1, 2)), np.array([4])))).num_classes == 5
    assert shared(Datasets(train=part(4), num_classes=1)).num_classes == 2
    real = shared(Datasets(train=(np.zeros((4, 2)), np.zeros(4))))
    assert (real.labels, real.num_classes) == (None, 0)
    assert [len(each) for each in found.first()] == [2, 2]
