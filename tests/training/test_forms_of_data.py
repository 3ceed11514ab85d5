"""The forms in which people bring data: each becomes the same examples, and what is none of them is told so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from netdfl.core.errors import DatasetError, InputError
from netdfl.training.data import examples
from netdfl.training.data.columns import Column, Columns, of_array
from netdfl.training.data.examples import ReadSamples, Samples, form, in_batches, joined, leaves, mapped, tensors
from netdfl.training.data.finite import refuse_spoiled, spoiled_in
from netdfl.training.data.own import Datasets, shared, with_test
from netdfl.training.data.reading import from_arrays, one_by_one
from netdfl.training.data.tables import ColumnRequest, from_table
from netdfl.training.tasks.given import handed_in

X, Y = np.arange(12.0).reshape(6, 2), np.arange(6) % 3


class Pairs:
    """What has a length and gives pairs."""

    def __init__(self, *columns: Any) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[-1])

    def __getitem__(self, place: int) -> tuple[Any, ...]:
        return tuple(column[place] for column in self.columns)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        raise NotImplementedError


def on_disk(folder: Path, values: np.ndarray) -> np.ndarray:
    np.save(folder / f"{values.dtype}.npy", values)
    return np.load(folder / f"{values.dtype}.npy", mmap_mode="r")


def all_of(found: Any) -> tuple[Any, Any]:
    return found.take(torch.arange(len(found)))  # type: ignore[no-any-return]


SAME: dict[str, Any] = {
    "arrays": (X, Y),
    "lists": (X.tolist(), Y.tolist()),
    "tensors": (torch.from_numpy(X), torch.from_numpy(Y)),
    "TensorDataset": TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
    "pairs": Pairs(X, Y),
    "pairs of lists": Pairs(X.tolist(), Y.tolist()),
    "examples": Samples(torch.from_numpy(X).float(), torch.from_numpy(Y)),
    "short integers": (X.astype(np.float32), Y.astype(np.int16)),
    "half precision, and classes in bytes": (X.astype(np.float16), Y.astype(np.uint8)),
    "bfloat16": (torch.from_numpy(X).bfloat16(), Y),
}


@pytest.mark.parametrize("name", SAME)
def test_equal_data_are_equal_examples_in_any_form(name: str) -> None:
    found = shared(Datasets(train=SAME[name]))
    x, y = all_of(found.train)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert torch.equal(x, torch.from_numpy(X).float())
    assert torch.equal(y, torch.from_numpy(Y))
    assert found.labels is not None
    assert (found.labels.tolist(), found.num_classes, found.num_given) == (Y.tolist(), 3, 6)
    assert (found.parts, found.rows, found.test, found.client_tests) == (None, None, None, None)


def test_arrays_on_disk_stay_there_and_read_the_same(tmp_path: Path) -> None:
    found = from_arrays((on_disk(tmp_path, X), on_disk(tmp_path, Y)), "train").examples
    x, y = all_of(found)
    assert torch.equal(x, torch.from_numpy(X).float())
    assert torch.equal(y, torch.from_numpy(Y))
    assert len(found) == 6


def test_of_several_inputs_the_last_column_is_the_target() -> None:
    for read in (from_arrays((X, Y + 1, Y), "train"), one_by_one(Pairs(X, Y + 1, Y), "train")):
        found = read.examples
        (first, second), y = all_of(found)
        assert torch.equal(first, torch.from_numpy(X).float())
        assert torch.equal(second, torch.from_numpy(Y) + 1)
        assert torch.equal(y, torch.from_numpy(Y))


def test_bytes_are_numbers_from_0_to_1_where_they_are_inputs_and_classes_where_they_are_targets() -> None:
    pixels = np.array([[0, 51], [102, 255]], np.uint8)
    for data in ((pixels, pixels[:, 0]), Pairs(pixels, pixels[:, 0])):
        x, y = all_of(shared(Datasets(train=data, num_classes=103)).train)
        assert torch.equal(x, torch.tensor([[0.0, 0.2], [0.4, 1.0]]))
        assert torch.equal(y, torch.tensor([0, 102]))


def test_pictures_have_their_channels_first() -> None:
    from PIL import Image

    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert torch.equal(tensors(Image.fromarray(pixels)), torch.from_numpy(pixels).permute(2, 0, 1) / 255)
    assert torch.equal(tensors(Image.fromarray(pixels[..., 0])), torch.from_numpy(pixels[None, ..., 0]) / 255)


NONE: dict[str, tuple[Any, str]] = {
    "neither": ({}, "Datasets needs either train, to be shared out, or clients"),
    "both": ({"train": (X, Y), "clients": [(X, Y)]}, "Datasets needs either train"),
    "tests of other clients": (
        {"clients": [(X, Y), (X, Y)], "client_tests": [(X, Y)]},
        "Datasets has 2 clients and 1 client_tests: give one for each client",
    ),
    "a column of one value": ({"train": (X, Y), "columns": {"site": 3}}, "column 'site' is 3: give one value for each"),
    "a short column": (
        {"train": (X, Y), "columns": {"site": [1, 2]}},
        "column 'site' has 2 values for 6 examples: give one for each",
    ),
    "other lengths": ({"train": (X, Y[:4])}, "train has 6 inputs and 4 targets: give as many of both"),
    "no examples in arrays": ({"train": (X[:0], Y[:0])}, "train has no examples: give at least one"),
    "no examples one by one": ({"train": (X, Y), "test": Pairs([], [])}, "test has no examples: give at least one"),
    "complex numbers": (
        {"clients": [(X, Y), (X * 1j, Y)]},
        r"clients\[1\] has inputs of complex128 \(1, 2\): expected",
    ),
    "complex targets": ({"train": (X, X * 1j)}, r"train has targets of complex128 \(1, 2\): expected real or whole"),
    "no length": ({"train": Endless()}, "train is an IterableDataset, which has no length: give a Dataset with len"),
    "one array": ({"train": X}, "train is ndarray: expected a torch Dataset, arrays"),
    "a number": ({"train": 3}, "train is int: expected a torch Dataset, arrays"),
    "text": ({"train": Pairs(["one"], [1])}, r"train\[0\] can't be read as examples: TypeError: 'one' is no number"),
    "nothing inside": ({"train": Pairs([None], [1])}, r"train\[0\] can't be read .* None is no number: give numbers"),
    "unequal shapes": (
        {"train": Pairs([[1.0], [1.0, 2.0]], [0, 1])},
        "train can't be read .*give all of them one shape, cut or filled up",
    ),
}


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_data_is_told_by_its_name(name: str) -> None:
    given, said = NONE[name]
    with pytest.raises(DatasetError, match=said):
        shared(Datasets(**given))


def test_classes_are_those_of_training_and_test_data_and_as_many_as_are_asked_for() -> None:
    test = (X[:2], np.array([4, 0]))
    assert shared(Datasets(train=(X, Y), test=test)).num_classes == 5
    assert shared(Datasets(train=(X, Y), test=test, num_classes=9)).num_classes == 9
    assert shared(Datasets(train=(X, X), num_classes=7)).num_classes == 7
    assert shared(Datasets(train=(X, X))).num_classes == 0
    assert shared(Datasets(train=(X, np.stack([Y, Y + 5], 1)))).num_classes == 8, "of whole numbers, as many as show"
    assert shared(Datasets(train=Pairs(X, [(one, one) for one in Y]))).num_classes == 0, "two targets are no class"
    assert shared(Datasets(train=(X, Y - 1))).labels is None, "below 0 there is no class"


def test_clients_lie_one_after_the_other_and_their_tests_together() -> None:
    mixed = [(X[:2], Y[:2]), (X[2:], Y[2:])]
    read = ReadSamples(lambda k: (torch.from_numpy(X[k]).float(), torch.tensor(Y[k])), np.arange(6))
    for clients in (mixed, [read.only(np.arange(2)), read.only(np.arange(2, 6))]):
        found = shared(Datasets(clients=clients, client_tests=mixed))
        assert found.parts is not None
        assert [part.tolist() for part in found.parts] == [[0, 1], [2, 3, 4, 5]]
        assert torch.equal(all_of(found.train)[1], torch.from_numpy(Y))
        assert found.test is not None
        assert torch.equal(all_of(found.test)[0], torch.from_numpy(X).float())
        assert found.client_tests is not None
        assert [len(each) for each in found.client_tests] == [2, 4]


def test_what_draws_is_read_anew_and_what_does_not_once() -> None:
    class Noisy(Pairs):
        def __getitem__(self, place: int) -> tuple[Any, ...]:
            x, y = super().__getitem__(place)
            return torch.from_numpy(x).float() + torch.rand(1), y

    class Sometimes(Noisy):
        def __getitem__(self, place: int) -> tuple[Any, ...]:
            return super().__getitem__(place) if place == 3 else Pairs.__getitem__(self, place)

    assert isinstance(one_by_one(Pairs(X, Y), "train").examples, Samples)
    for kind in (Noisy, Sometimes):
        found = one_by_one(kind(X, Y), "train").examples
        assert isinstance(found, ReadSamples)
        assert len(found.only(np.array([1, 4]))) == 2
        assert torch.equal(found.only(np.array([1, 4])).take(torch.tensor([1]))[1], torch.from_numpy(Y[[4]]))


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_test_set_is_held_out_of_every_client_and_all_else_stays_with_its_row(share: float) -> None:
    whole = shared(Datasets(train=(X, Y), columns={"site": list("abcdef")}))
    clients = shared(Datasets(clients=[(X[:2], Y[:2]), (X[2:], Y[2:])]))
    for data, held in ((whole, round(6 * share)), (clients, round(2 * share) + round(4 * share))):
        found = with_test(data, share, np.random.default_rng(0))
        assert found.test is not None
        assert found.rows is not None
        assert found.labels is not None
        x, y = all_of(found.train)
        assert (len(found.test), len(y)) == (held, 6 - held)
        assert np.array_equal(x.numpy(), X[found.rows])
        assert np.array_equal(found.labels, Y[found.rows])
        rest = all_of(found.test)[0][:, 0].tolist()
        assert sorted([*rest, *x[:, 0].tolist()]) == X[:, 0].tolist()
        assert any(f"{held} of 6 examples are held out" in note for note in found.notes)
        assert with_test(found, share, np.random.default_rng(0)) is found, "it has one"
        if found.parts is not None:
            clients_of = [{row >= 2 for row in found.rows[part]} for part in found.parts]
            assert clients_of == [{False}, {True}]
        else:
            assert list(found.columns["site"]) == [list("abcdef")[row] for row in found.rows]


def test_too_few_examples_to_hold_some_out_are_refused() -> None:
    with pytest.raises(DatasetError, match="6 examples are too few to hold 1% of them out"):
        with_test(shared(Datasets(train=(X, Y))), 0.01, np.random.default_rng(0))
    with pytest.raises(DatasetError, match="1 examples are too few to hold 90% of them out"):
        with_test(shared(Datasets(train=(X[:1], Y[:1]))), 0.9, np.random.default_rng(0))


# trees

TREE = {"a": torch.arange(4), "b": (torch.arange(4.0), {"c": torch.ones(4, 2)})}


def test_trees_of_any_form_are_walked_mapped_joined_and_told() -> None:
    assert [leaf.shape for leaf in leaves(TREE)] == [(4,), (4,), (4, 2)]
    doubled = mapped(TREE, lambda tensor: tensor * 2)
    assert doubled.keys() == TREE.keys()
    assert torch.equal(doubled["b"][0], torch.arange(4.0) * 2)
    assert torch.equal(doubled["b"][1]["c"], torch.full((4, 2), 2.0))
    both = joined([TREE, doubled])
    assert torch.equal(both["a"], torch.tensor([0, 1, 2, 3, 0, 2, 4, 6]))
    assert both["b"][1]["c"].shape == (8, 2)
    assert joined([TREE, TREE], torch.stack)["b"][1]["c"].shape == (2, 4, 2)
    assert form(TREE) == "{a: int64 (4,), b: (float32 (4,), {c: float32 (4, 2)})}"
    assert form([TREE["a"], 3]) == "(int64 (4,), int)"
    made = tensors({"a": np.arange(4, dtype=np.int32), "b": (np.arange(4.0), {"c": [[1.0, 1.0]] * 4})})
    assert form(made) == "{a: int64 (4,), b: (float32 (4,), {c: " + form(made["b"][1]["c"]) + "})}"
    with pytest.raises(TypeError, match="b'12' is no number: give numbers, of classes from 0 on"):
        tensors({"a": b"12"})


def test_examples_of_trees_are_taken_picked_and_moved_in_all_their_tensors() -> None:
    found = Samples(TREE, TREE["a"])
    x, y = found.take(torch.tensor([2, 0]))
    assert torch.equal(x["a"], y)
    assert torch.equal(x["b"][0], torch.tensor([2.0, 0.0]))
    assert len(found) == 4
    assert torch.equal(found.only(np.array([3])).x["b"][0], torch.tensor([3.0]))
    moved = found.to("meta")
    assert {leaf.device.type for leaf in (*leaves(moved.x), *leaves(moved.y))} == {"meta"}
    read = ReadSamples(lambda k: ({"a": torch.tensor(k)}, torch.tensor(k + 1)), np.array([5, 7, 9]))
    assert read.take(torch.tensor([2, 1]))[0]["a"].tolist() == [9, 7]
    assert read.take(torch.tensor([2, 1]))[1].tolist() == [10, 8]
    assert {leaf.device.type for leaf in leaves(read.to("meta").take(torch.tensor([0])))} == {"meta"}
    assert read.to("meta").only(np.array([1])).device == "meta"
    sizes = [[leaf.shape[0] for leaf in leaves(batch)] for batch in in_batches(found, 3)]
    assert sizes == [[3] * 4, [1] * 4]
    assert examples.in_memory(found) is found
    assert examples.in_memory(read).x["a"].tolist() == [5, 7, 9]
    assert examples.shape_of(({"p": torch.ones(4, 3, 2)}, torch.ones(4))) == (3, 2)


# columns and tables


def test_a_column_says_what_it_holds_and_which_cells_are_empty() -> None:
    import datetime

    def told(values: Any) -> tuple[str, list[bool]]:
        found = of_array(np.asarray(values))
        return found.unlike, found.empty.tolist()

    assert told([1.0, np.nan]) == ("", [False, True])
    assert told([np.nan, np.nan])[0] == "nothing in any row"
    assert told(np.array([None, None], object))[0] == "nothing in any row"
    assert told(np.array([1, None], object)) == ("", [False, True])
    assert told(np.array([1, "x"], object))[0] == "text, 'x' in row 1"
    assert told(np.array([None, datetime.date(2024, 1, 2)], object))[0] == "dates, '2024-01-02' in row 1"
    assert told(np.array(["2024-01-02"], "datetime64[D]"))[0].startswith("dates, '2024-01-02' in row 0")
    assert told(np.array([[1, 2], [3, 4]]))[0] == "arrays of shape (2,)"
    assert told(np.array([{}], object))[0] == "dict, '{}' in row 0"
    masked = of_array(np.ma.masked_array([1, 2, 3], [0, 1, 0]))
    assert masked.empty.tolist() == [False, True, False]
    assert of_array(np.array([3, None], object)).values.tolist() == [3, 0]
    assert (len(Columns({"a": [1, 2]}, "f")), len(Columns({}, "f"))) == (2, 0)


def column(*values: Any) -> Column:
    return of_array(np.array(values, object))


TABLE = {"age": column(1, 2, 3), "name": column("x", "y", "z"), "cost": column(1.5, None, 2.5)}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (ColumnRequest(None, None), "t names no column to predict: set target to one of age, name, cost"),
        (ColumnRequest("gone", None), "t has no column 'gone': set target to one of age, name, cost"),
        (ColumnRequest("age", ["gone"]), "t has no column 'gone': set inputs to some of age, name, cost"),
        (ColumnRequest("age", []), "t has no column of numbers beside the target: set inputs"),
        (ColumnRequest("age", ["name"]), "t: the column 'name' holds text, 'x' in row 0, expected numbers: encode it"),
        (
            ColumnRequest("age", ["cost"]),
            r"t: row 1 \(counted from 0\) is empty in column 'cost': fill it, leave the column",
        ),
        (
            ColumnRequest("cost", ["age"]),
            r"t: row 1 \(counted from 0\) is empty in column 'cost': fill it, or set missing",
        ),
    ],
)
def test_a_table_that_lacks_what_is_asked_for_is_refused(asked: ColumnRequest, said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        from_table(TABLE, asked, "t")


def test_a_table_with_a_hole_in_every_row_has_none_to_keep() -> None:
    holes = {"a": column(1, None), "b": column(None, 2)}
    with pytest.raises(DatasetError, match="t has no row without an empty cell: leave columns out by inputs"):
        from_table(holes, ColumnRequest("a", ["b"], "drop"), "t")


def test_rows_that_are_dropped_are_counted_and_means_are_named() -> None:
    found = from_table(TABLE, ColumnRequest("age", ["cost"], "drop"), "t")
    assert found.rows is not None
    assert (found.rows.tolist(), found.notes) == ([0, 2], ["t: 1 row with empty cells left out"])
    filled = from_table(TABLE, ColumnRequest("age", ["cost"], "mean"), "t")
    assert all_of(filled.examples)[0][:, 0].tolist() == [1.5, 2.0, 2.5]
    assert filled.notes == ["t: empty cells of cost have the mean of their column"]
    assert filled.rows is None


# what is not finite


def test_an_example_that_is_not_finite_is_named_with_its_row_and_refused_where_its_loss_is_not_either() -> None:
    x = torch.zeros(4, 2)
    x[2, 1], x[1, 0] = float("nan"), float("inf")
    found = list(spoiled_in(Samples(x, torch.tensor([0.0, 1.0, 2.0, float("nan")])), "train", np.array([7, 8, 9, 10])))
    assert [(bad.name, bad.holds) for bad in found] == [
        ("train[9]", "NaN in its input"),
        ("train[8]", "infinity in its input"),
        ("train[10]", "NaN in its target"),
    ]
    assert torch.equal(found[1].example.x, x[1:2])
    refuse_spoiled(found, lambda example: 1.0)

    def raises(example: Samples) -> float:
        raise RuntimeError

    for loss_of in (lambda example: float("nan"), raises):
        with pytest.raises(DatasetError, match=r"train\[9\] has NaN in its input, train\[8\] has infinity"):
            refuse_spoiled(found, loss_of)
    assert list(spoiled_in(Samples(torch.zeros(2, 2), torch.arange(2)), "train")) == []
    assert list(spoiled_in(ReadSamples(lambda k: (torch.tensor(np.nan), k), np.arange(2)), "train")) == []
    wide = Samples((torch.zeros(2), x[1:3]), torch.arange(2))
    assert [bad.name for bad in spoiled_in(wide, "test")] == ["test[1]", "test[0]"]


# objects


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": dict}, "model is the class dict: expected a torch.nn.Module, a class of one, or a function"),
        ({"model": 3}, "model is int: expected a torch.nn.Module"),
        ({"data": Pairs}, r"data is the class Pairs: expected data, such as Pairs\(...\)"),
        ({"data": [(X, Y), (X, Y)]}, r"data is a list of two, which may be \(train, test\) or two clients"),
        ({"data": 3}, "data is int: expected a torch Dataset"),
        ({"data": (X, Y, X)}, "data is tuple of 3: expected a torch Dataset"),
    ],
)
def test_objects_that_are_nothing_of_the_kind_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        handed_in(**given)


def test_objects_are_found_under_the_names_that_are_given() -> None:
    from functools import partial

    from netdfl.training.tasks import given

    module = torch.nn.Linear(3, 2)
    found = handed_in(model=module, data=[(X, Y)] * 3)
    assert found.model is not None
    assert found.dataset is not None
    first, second = (getattr(given, found.model.partition(":")[2])() for _ in range(2))
    assert first is not second is not module
    assert torch.equal(first.weight, module.weight)
    data = getattr(given, found.dataset.partition(":")[2])()
    assert isinstance(data, Datasets)
    assert data.clients is not None
    assert len(data.clients) == 3
    assert handed_in() == (None, None)
    nothing = handed_in(data=[]).dataset
    assert nothing is not None
    with pytest.raises(DatasetError, match="train"):
        shared(Datasets(train=getattr(given, nothing.partition(":")[2])()))
    made = handed_in(model=partial(torch.nn.Linear, 3, 2)).model
    assert made is not None
    assert isinstance(getattr(given, made.partition(":")[2])(), torch.nn.Linear)
    with pytest.raises(AttributeError, match="model_9999 was handed in as an object, which this process does not have"):
        given.model_9999  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        given.other  # noqa: B018
