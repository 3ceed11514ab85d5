"""A user's data in any form that PyTorch projects use, converted to the common form that a fleet needs.

    a torch.utils.data.Dataset          of pairs (input, target); of more, the last one is the target
    arrays or tensors                   (inputs, targets)
    a data frame                        pandas or polars; `target` names the column, `inputs` others than all numbers,
                                        `missing` decides on empty cells
    a `datasets.Dataset`                of Hugging Face; `target` and `inputs` name columns
    any of these, twice                 (train, test), or {"train": ..., "test": ...}
    `Datasets`                          everything by name: one per client, columns to share out by, ...

Examples that are equal at each reading are read once, if they fit in little memory. Others, which are large or random
(by augmentation), are read anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.core.errors import DatasetError, expect, is_whole
from netdfl.core.whose import named_error, own_place
from netdfl.training.data.columns import Column, Columns, columns_of, is_frame, is_hugging_face, of_array
from netdfl.training.data.dataset import Dataset, Missing
from netdfl.training.data.examples import (
    Examples,
    ReadSamples,
    Samples,
    Tree,
    form,
    in_batches,
    in_memory,
    joined,
    leaves,
    mapped,
    with_whole_targets,
)
from netdfl.training.data.finite import NonFiniteExample, spoiled_in
from netdfl.training.data.kinds import said_of_bytes
from netdfl.training.data.reading import from_arrays, from_hugging_face, is_column, is_numbers, kind_of, one_by_one
from netdfl.training.data.tables import ColumnRequest, ReadExamples, classes_in, from_table, in_one_order

T = TypeVar("T")
MOST_READ, READ_AT_ONCE = 4096, 32
"""The most examples of a set that is not in memory which are read to learn about its targets, and how many at once."""
_FORMS = "a torch Dataset, arrays (inputs, targets), a data frame, or netdfl.Datasets"


@dataclass(frozen=True, kw_only=True)
class Datasets:
    """Data to train and test on: each a torch Dataset, arrays `(inputs, targets)`, or a data frame, among others.

    Attributes:
        train: Examples that are shared out over the clients as the scenario says.
        clients: In place of `train`: each client's own examples.
        test: The test set of all models; without it the clients' own tests together, or a part of `train`.
        client_tests: The test set of each client's model.
        target: The column of a data frame or a `datasets.Dataset` that is to be predicted.
        inputs: The columns that it is predicted from; by default all others that hold numbers.
        missing: The treatment of a table's empty cells: `refuse`, `drop` such rows, or the `mean` of an input's column.
        columns: Values by which `partition: {kind: by_column}` shares `train` out, one for each example.
        num_classes: The number of classes, where more exist than occur.
    """

    train: Any = None
    clients: Sequence[Any] | None = None
    test: Any = None
    client_tests: Sequence[Any] | None = None
    target: str | None = None
    inputs: Sequence[str] | None = None
    missing: Missing = "refuse"
    columns: Mapping[str, Any] = field(default_factory=dict)
    num_classes: int | None = None

    def __post_init__(self) -> None:
        """Check the types of the attributes. Raises InputError."""
        for name, given in (("clients", self.clients), ("client_tests", self.client_tests)):
            fits = given is None or (isinstance(given, list | tuple) and len(given))
            expect(fits, f"Datasets: {name}", given, "a list with data for each client")
        fits = self.inputs is None or (
            isinstance(self.inputs, list | tuple) and all(isinstance(each, str) for each in self.inputs)
        )
        expect(fits, "Datasets: inputs", self.inputs, "a list of names of columns")
        expect(
            self.target is None or isinstance(self.target, str), "Datasets: target", self.target, "the name of a column"
        )
        expect(self.missing in get_args(Missing), "Datasets: missing", self.missing, "refuse, drop or mean")
        expect(isinstance(self.columns, Mapping), "Datasets: columns", self.columns, "a mapping of names to values")
        fits = self.num_classes is None or is_whole(self.num_classes, 1)
        expect(fits, "Datasets: num_classes", self.num_classes, "a whole number from 1 on")


class OwnLossDatasets(Datasets):
    """Data for a loss of the user's own, which takes booleans as targets where netdfl's losses need whole numbers."""


def for_own_loss(data: T) -> T | OwnLossDatasets:
    """Return a user's `Datasets` as `OwnLossDatasets`, which keep boolean targets; return anything else unchanged."""
    return OwnLossDatasets(**vars(data)) if isinstance(data, Datasets) else data


@dataclass(frozen=True, kw_only=True)
class SharedData:
    """The fleet's data in the form that is common to all kinds of datasets.

    Attributes:
        train: the training examples.
        test: the test examples; None if there are none.
        labels: the training targets if each is one class; else None.
        num_classes: the number of classes; 0 if targets are something else.
        parts: the indices of each client's examples, if the data are given client by client.
        client_tests: the test examples of each client, if there are any.
        columns: the columns by which examples can be shared out, by name.
        rows: the index of each example of `train` in the data as given; None: all of them, in order.
        num_given: the number of examples in the data as given.
        drops: whether examples without a value in the column by which they are shared out may be left out.
        spoiled: examples with NaN or infinity.
        notes: sentences about the data for the user.
    """

    train: Examples
    test: Examples | None
    labels: NDArray[np.int64] | None
    num_classes: int
    parts: list[NDArray[np.int64]] | None = None
    client_tests: Sequence[Examples] | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    rows: NDArray[np.int64] | None = None
    num_given: int = 0
    drops: bool = False
    spoiled: Sequence[NonFiniteExample] = ()
    notes: Sequence[str] = ()

    def first(self) -> tuple[Tree, Tree]:
        """Return two training examples for trial computations."""
        return self.train.take(torch.arange(min(2, len(self.train))))


def adapted(found: Any) -> Dataset | Datasets:
    """Convert the result of a user's function to a `Dataset` or `Datasets`.

    Raises TypeError that names the permitted forms.
    """
    if isinstance(found, Dataset | Datasets):
        return found
    if isinstance(found, Mapping) and "train" in found:
        return Datasets(train=found["train"], test=found.get("test", found.get("validation")))
    if isinstance(found, tuple | list) and len(found) == 2 and not (is_column(found[0]) or is_numbers(found[0])):
        return Datasets(train=found[0], test=found[1])
    if _is_data(found) and not (isinstance(found, tuple) and len(found) != 2 and (not found or _is_data(found[0]))):
        return Datasets(train=found)
    raise TypeError(f"{_FORMS}, or (train, test) of these")


def shared(given: Datasets) -> SharedData:
    """Convert a user's `Datasets` to `SharedData`, the form that all kinds of datasets have in common.

    Raises DatasetError for data in no permitted form; its message names the permitted ones.
    """
    if (given.train is None) == (given.clients is None):
        raise DatasetError("Datasets needs either train, to be shared out, or clients, each client's own")
    found = _read_all(given)
    reads = [read for each in found.values() for read in each]
    train, parts, columns, rows = _training(found)
    own = [each.examples for each in found["client_tests"]] or None
    test = found["test"][0].examples if found["test"] else _together(own)[0] if own else None
    if own is not None and parts is not None and len(own) != len(parts):
        raise DatasetError(f"Datasets has {len(parts)} clients and {len(own)} client_tests: give one for each client")
    num = len(train) if not columns else len(next(iter(columns.values())).empty)
    columns = columns | {name: _by_hand(name, values, num) for name, values in given.columns.items()}
    labels = _labels(train)
    tested = [_labels(each) for each in (test, *(own or ())) if labels is not None and isinstance(each, Samples)]
    known = [int(each.max()) + 1 for each in (labels, *tested) if each is not None]
    num_classes = max(*known, given.num_classes or 0) if known else 0
    return SharedData(
        train=train,
        test=test,
        labels=labels,
        num_classes=num_classes or max(given.num_classes or 0, _most([train, test, *(own or ())])),
        parts=parts,
        client_tests=own,
        columns={name: column.only(rows) for name, column in columns.items()},
        rows=rows,
        num_given=num,
        drops=given.missing == "drop",
        spoiled=[bad for read in reads for bad in spoiled_in(read.examples, read.name, read.rows)],
        notes=[*dict.fromkeys(note for read in reads for note in read.notes), *said_of_bytes(reads)],
    )


def _read_all(given: Datasets) -> dict[str, list[ReadExamples]]:
    """Read all data of `given` as examples: `train` or `clients`, and test sets.

    Raises DatasetError that names the data that can't be read, such as `clients[2]`.
    """
    lists = {"train": [given.train], "clients": given.clients, "test": [given.test], "client_tests": given.client_tests}
    named = {
        key: {_called(key, place): data for place, data in enumerate(each or ()) if data is not None}
        for key, each in lists.items()
    }
    ordered = in_one_order({what: data for each in named.values() for what, data in each.items()})
    tables = {what: _read(columns_of, data, what) for what, data in ordered.items()}
    asked = ColumnRequest(given.target, given.inputs, given.missing, classes_in(tables, given.target))
    read: dict[str, ReadExamples] = {}
    for what, data in ordered.items():
        read[what] = _read(partial(_examples, columns=tables[what], asked=asked, what=what), data, what)
        asked = asked.settled(read[what])
    if not isinstance(given, OwnLossDatasets):
        read = {what: replace(each, examples=with_whole_targets(each.examples)) for what, each in read.items()}
    return {key: [read[what] for what in each] for key, each in named.items()}


def _called(key: str, place: int) -> str:
    return key if key in ("train", "test") else f"{key}[{place}]"


def _training(found: Mapping[str, list[ReadExamples]]) -> tuple[Examples, Any, dict[str, Column], Any]:
    """Return the training examples, and how they can be shared out over clients.

    `found` has the examples that were read from `train` or `clients`. The other returned values are each client's
    indices (None if the data are not given by client), the columns, and the examples' row numbers in the columns (None:
    all rows).
    """
    if found["clients"]:
        train, parts = _together([each.examples for each in found["clients"]])
        return train, parts, {}, None
    (read,) = found["train"]
    return read.examples, None, dict(read.columns), read.rows


def _by_hand(name: str, values: Any, num: int) -> Column:
    """Return a column of values, one for each example, that the user gives in addition to the data.

    Raises DatasetError unless they are as many as the examples, `num`.
    """
    found = np.asarray(values)
    if found.ndim == 0:
        raise DatasetError(f"column {name!r} is {str(found)[:80]}: give one value for each example")
    if len(found) != num:
        raise DatasetError(f"column {name!r} has {len(found)} values for {num} examples: give one for each")
    return of_array(found)


def with_test(data: SharedData, share: float, rng: np.random.Generator) -> SharedData:
    """Return `data` with a test set: its own, or a `share` held out of each client's examples, or of all."""
    if data.test is not None:
        return data
    held: list[NDArray[np.int64]] = []
    kept: list[NDArray[np.int64]] = []
    for part in data.parts or [np.arange(len(data.train))]:
        order = rng.permutation(part)
        cut = round(share * len(part))
        held.append(np.sort(order[:cut]))
        kept.append(np.sort(order[cut:]))
    left, out = np.concatenate(kept), np.concatenate(held)
    if not len(out) or not len(left):
        raise DatasetError(f"{len(data.train)} examples are too few to hold {share:.0%} of them out as a test set")
    starts = np.cumsum([0, *map(len, kept)])
    note = f"{len(out)} of {len(data.train)} examples are held out as the test set, as the data bring none"
    return replace(
        data,
        rows=(np.arange(len(data.train)) if data.rows is None else data.rows)[left],
        notes=[*data.notes, note],
        train=data.train.only(left),
        test=data.train.only(out),
        labels=None if data.labels is None else data.labels[left],
        parts=None if data.parts is None else [np.arange(a, b) for a, b in pairwise(starts)],
        columns={name: values[left] for name, values in data.columns.items()},
    )


def _read(reader: Callable[[Any], T], data: Any, what: str) -> T:
    """Return `reader(data)`; convert errors to a DatasetError in which the data are called `what`."""
    try:
        return reader(data)
    except DatasetError:
        raise
    except Exception as error:
        where = getattr(error, "__notes__", ("",))[0]
        place = f" ({own})" if (own := own_place(error)) else ""
        told = f"{what}{where} can't be read as examples: {named_error(error)}{place}"
        remedy = "; give all of them one shape, cut or filled up" if "stack expects" in str(error) else ""
        raise DatasetError(f"{told}{remedy}") from error


def _examples(data: Any, columns: Mapping[str, Column], asked: ColumnRequest, what: str) -> ReadExamples:
    """Read one of a user's data sets as numeric examples. Raises DatasetError.

    `columns` are the columns of a table, `asked` is the user's choice among them, and `what` names the data in
    messages.
    """
    read = replace(_by_form(data, columns, asked, what), name=what)
    if not len(read.examples):
        raise DatasetError(f"{what} has no examples: give at least one")
    x, y = read.examples.take(torch.arange(1))
    for name, tree in (("input", x), ("target", y)):
        for leaf in leaves(tree):
            if not leaf.is_floating_point() and leaf.dtype not in (torch.int64, torch.uint8, torch.bool):
                raise DatasetError(f"{what} has {name}s of {form(leaf)}: expected real or whole numbers")
    return read


def _by_form(data: Any, columns: Mapping[str, Column], asked: ColumnRequest, what: str) -> ReadExamples:
    if isinstance(data, Samples | ReadSamples):
        return ReadExamples(data)
    if is_hugging_face(data):
        return from_hugging_face(data, columns, asked, what)
    if isinstance(data, Columns) or is_frame(data):
        return from_table(columns, asked, data.file if isinstance(data, Columns) else what)
    if isinstance(data, torch.utils.data.IterableDataset):
        raise DatasetError(f"{what} is an IterableDataset, which has no length: give a Dataset with len() and [k]")
    if isinstance(data, torch.utils.data.TensorDataset):
        return from_arrays(tuple(data.tensors), what)
    if isinstance(data, tuple | list) and len(data) == 2:
        return from_arrays(tuple(data), what)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not is_column(data):
        return one_by_one(data, what)
    raise DatasetError(f"{what} is {kind_of(data)}: expected {_FORMS}")


def _together(each: Sequence[Examples]) -> tuple[Examples, list[NDArray[np.int64]]]:
    """Concatenate sets of examples; return them with the indices of each set's examples in the result."""
    starts = np.cumsum([0, *map(len, each)])
    parts = [np.arange(first, last) for first, last in pairwise(starts)]
    if all(isinstance(some, Samples) for some in each):
        return Samples(*joined([(some.x, some.y) for some in map(in_memory, each)])), parts

    def read(place: int) -> tuple[Tree, Tree]:
        which = int(np.searchsorted(starts, place, side="right")) - 1
        example = each[which].take(torch.tensor([place - int(starts[which])]))
        x, y = mapped(example, lambda tensor: tensor[0])
        return x, y

    return ReadSamples(read, np.arange(int(starts[-1]))), parts


def _labels(train: Examples) -> NDArray[np.int64] | None:
    """Return the class of every example; None if targets are not single whole numbers."""
    y = train.y if isinstance(train, Samples) else train.take(torch.arange(1))[1]
    if not isinstance(y, Tensor) or y.is_floating_point() or y.dim() != 1:
        return None
    if not isinstance(train, Samples):
        y = torch.tensor([int(train.take(torch.tensor([place]))[1]) for place in range(len(train))])
    return y.long().numpy() if int(y.min()) >= 0 else None


def _most(sets: Sequence[Examples | None]) -> int:
    """Return the number of classes, one more than the largest whole-number target; 0 for other targets."""
    most = 0
    for examples in sets:
        for y in some_targets(examples) if examples is not None else ():
            if not isinstance(y, Tensor) or y.is_floating_point():
                return 0
            most = max(most, int(y.max()) + 1)
    return most


def some_targets(examples: Examples) -> Iterator[Tree]:
    """Yield all targets at once if they are in memory; else the targets of the first examples, a few at a time."""
    if isinstance(examples, Samples):
        yield examples.y
    else:
        yield from (y for _, y in in_batches(examples.only(np.arange(min(len(examples), MOST_READ))), READ_AT_ONCE))


def _is_data(found: Any) -> bool:
    if isinstance(found, str | bytes):
        return False
    pair = isinstance(found, tuple | list) and len(found) == 2
    return pair or is_frame(found) or (hasattr(found, "__getitem__") and hasattr(found, "__len__"))
