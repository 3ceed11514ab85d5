"""Data of one's own, in whatever form a PyTorch project has them, brought into the one form that a fleet shares out.

    a torch.utils.data.Dataset          of pairs (input, target); of more, the last one is the target
    arrays or tensors                   (inputs, targets)
    a data frame                        pandas or polars; `target` names the column, `inputs` others than all numbers
    a `datasets.Dataset`                of Hugging Face; `target` and `inputs` name columns
    any of these, twice                 (train, test), or {"train": ..., "test": ...}
    `Datasets`                          says all of it by name: one per client, columns to share out by, ...

What gives the same examples each time is read once where it is small, and anew each time where it is not, or where it
draws at random, as augmentations do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.core.arguments import expect, is_whole
from netdfl.core.errors import DatasetError
from netdfl.training.data.dataset import Dataset
from netdfl.training.data.examples import Examples, ReadSamples, Samples, in_memory
from netdfl.training.data.trees import Tree, form, joined, leaves, mapped, tensors
from netdfl.training.drawing import seeded

MOST_IN_MEMORY = 1 << 30
"""Bytes up to which examples that are read one by one are kept once they were read."""
_TRIED = 4
_FORMS = "a torch Dataset, arrays (inputs, targets), a data frame, or netdfl.Datasets"


@dataclass(frozen=True, kw_only=True)
class Datasets:
    """Data to train and test on: each a torch Dataset, arrays `(inputs, targets)`, a data frame, ...; see the module.

    Attributes:
        train: Examples that are shared out over the clients as the scenario says.
        clients: In place of `train`: each client's own examples.
        test: What all models are tested on; without it the clients' own tests together, or a part of `train`.
        client_tests: What each client's model is tested on by itself.
        target: The column of a data frame or a `datasets.Dataset` that is to be predicted.
        inputs: The columns that it is predicted from; by default all others that hold numbers.
        columns: Values by which `partition: {kind: by_column}` shares `train` out, one for each example.
        num_classes: How many classes there are, where more than those that occur.
    """

    train: Any = None
    clients: Sequence[Any] | None = None
    test: Any = None
    client_tests: Sequence[Any] | None = None
    target: str | None = None
    inputs: Sequence[str] | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    num_classes: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is of another type. Raises InputError."""
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
        expect(isinstance(self.columns, Mapping), "Datasets: columns", self.columns, "a mapping of names to values")
        fits = self.num_classes is None or is_whole(self.num_classes, 1)
        expect(fits, "Datasets: num_classes", self.num_classes, "a whole number from 1 on")


@dataclass(frozen=True, kw_only=True)
class SharedData:
    """The fleet's data in one form. `parts` are given where the data come client by client.

    `labels` are the training targets where these are one class each; 0 classes: they are something else.
    """

    train: Examples
    test: Examples | None
    labels: NDArray[np.int64] | None
    num_classes: int
    parts: list[NDArray[np.int64]] | None = None
    client_tests: Sequence[Examples] | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def first(self) -> tuple[Tree, Tree]:
        """Two training examples, to try things on."""
        return self.train.take(torch.arange(min(2, len(self.train))))


def adapted(found: Any) -> Dataset | Datasets:
    """What a function of a user's returned, as a `Dataset` or `Datasets`. Raises TypeError, with what would be."""
    if isinstance(found, Dataset | Datasets):
        return found
    if isinstance(found, Mapping) and "train" in found:
        return Datasets(train=found["train"], test=found.get("test", found.get("validation")))
    if isinstance(found, tuple | list) and len(found) == 2 and not (is_column(found[0]) or _is_numbers(found[0])):
        return Datasets(train=found[0], test=found[1])
    if _is_data(found) and not (isinstance(found, tuple) and len(found) != 2 and _is_data(found[0])):
        return Datasets(train=found)
    raise TypeError(f"{_FORMS}, or (train, test) of these")


def shared(given: Datasets) -> SharedData:
    """`given` in one form. Raises DatasetError, with what came and what would do."""
    if (given.train is None) == (given.clients is None):
        raise DatasetError("Datasets needs either train, to be shared out, or clients, each client's own")
    columns = {name: np.asarray(values) for name, values in given.columns.items()}
    parts = None
    if given.clients is not None:
        each = [examples(data, given, f"clients[{place}]") for place, data in enumerate(given.clients)]
        train, parts = _together(each)
    else:
        train = examples(given.train, given, "train")
        columns = _columns_of(given.train) | columns
    tests = given.client_tests
    own = None if tests is None else [examples(t, given, f"client_tests[{n}]") for n, t in enumerate(tests)]
    test = examples(given.test, given, "test") if given.test is not None else _together(own)[0] if own else None
    if own is not None and parts is not None and len(own) != len(parts):
        raise DatasetError(f"Datasets has {len(parts)} clients and {len(own)} client_tests: give one for each client")
    for name, values in columns.items():
        if values.ndim == 0:
            raise DatasetError(f"column {name!r} is {str(values)[:80]}: give one value for each example")
        if len(values) != len(train):
            raise DatasetError(f"column {name!r} has {len(values)} values for {len(train)} examples: give one for each")
    labels = _labels(train)
    tested = _labels(test) if labels is not None and isinstance(test, Samples) else None
    known = [int(each.max()) + 1 for each in (labels, tested) if each is not None]
    num = max(*known, given.num_classes or 0) if known else 0
    return SharedData(
        train=train,
        test=test,
        labels=labels,
        num_classes=num or given.num_classes or _most(train),
        parts=parts,
        client_tests=own,
        columns=columns,
    )


def with_test(data: SharedData, share: float, rng: np.random.Generator) -> SharedData:
    """`data` with a test set: its own, or else `share` of the training examples, held out of every client's part."""
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
    return replace(
        data,
        train=data.train.only(left),
        test=data.train.only(out),
        labels=None if data.labels is None else data.labels[left],
        parts=None if data.parts is None else [np.arange(a, b) for a, b in pairwise(starts)],
        columns={name: values[left] for name, values in data.columns.items()},
    )


def examples(data: Any, given: Datasets, what: str) -> Examples:
    """`data`, one thing of a user's, as examples. Raises DatasetError that names it `what`."""
    try:
        found = _examples(data, given, what)
    except DatasetError:
        raise
    except Exception as error:
        where = getattr(error, "__notes__", ("",))[0]
        told = f"{what}{where} can't be read as examples: {type(error).__name__}: {error}"
        remedy = "; give all of them one shape, cut or filled up" if "stack expects" in str(error) else ""
        raise DatasetError(f"{told}{remedy}") from error
    if not len(found):
        raise DatasetError(f"{what} has no examples: give at least one")
    x, y = found.take(torch.arange(1))
    for name, tree in (("input", x), ("target", y)):
        for leaf in leaves(tree):
            if not leaf.is_floating_point() and leaf.dtype not in (torch.int64, torch.uint8):
                raise DatasetError(f"{what} has {name}s of {form(leaf)}: expected real or whole numbers")
    return found


def _examples(data: Any, given: Datasets, what: str) -> Examples:
    if isinstance(data, Samples | ReadSamples):
        return data
    if hasattr(data, "column_names") and hasattr(data, "features"):
        return _hugging_face(data, given, what)
    if _is_frame(data):
        return _frame(data, given, what)
    if isinstance(data, torch.utils.data.IterableDataset):
        raise DatasetError(f"{what} is an IterableDataset, which has no length: give a Dataset with len() and [k]")
    if isinstance(data, torch.utils.data.TensorDataset):
        return _arrays(tuple(data.tensors), what)
    if isinstance(data, tuple | list) and len(data) == 2:
        return _arrays(tuple(data), what)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not is_column(data):
        return _map_style(data, what)
    raise DatasetError(f"{what} is {_kind(data)}: expected {_FORMS}")


def _arrays(columns: tuple[Any, ...], what: str) -> Examples:
    columns = tuple(np.asarray(column) if _is_numbers(column) else column for column in columns)
    lengths = [len(next(_flat(column))) for column in columns]
    if len(set(lengths)) > 1:
        raise DatasetError(f"{what} has {lengths[0]} inputs and {lengths[-1]} targets: give as many of both")
    inputs = columns[0] if len(columns) <= 2 else columns[:-1]
    memory = [each for each in _flat(columns) if isinstance(each, np.memmap)]
    if memory:  # larger than memory, perhaps: read what is asked for
        return _map_style(_Rows(inputs, columns[-1]), what)
    return Samples(_real(tensors(inputs)), tensors(columns[-1]))


@dataclass(frozen=True)
class _Rows:
    """Arrays that lie on disk, a row at a time."""

    inputs: Any
    targets: Any

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        return np.array(self.inputs[place]), np.array(self.targets[place])


def _map_style(data: Any, what: str) -> Examples:
    def read(place: int) -> tuple[Tree, Tree]:
        try:
            return pair(data[place])
        except Exception as error:
            error.add_note(f"[{place}]")
            raise

    def pair(item: Any) -> tuple[Tree, Tree]:
        if isinstance(item, Mapping):
            raise TypeError(f"an example is a mapping with {', '.join(map(str, item))}: give pairs (input, target)")
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise TypeError(f"an example is {_kind(item)}: give pairs (input, target)")
        inputs = item[0] if len(item) == 2 else tuple(item[:-1])
        return _real(tensors(inputs)), tensors(item[-1])

    if not len(data):
        raise DatasetError(f"{what} has no examples: give at least one")
    return _kept(ReadSamples(read, np.arange(len(data))))


def _kept(found: ReadSamples) -> Examples:
    """Read into memory what is small and the same each time."""
    first = [found.read(int(place)) for place in found.indices[:_TRIED]]
    nbytes = sum(leaf.nbytes for leaf in leaves(first)) / len(first)
    return in_memory(found) if nbytes * len(found) <= MOST_IN_MEMORY and _repeats(found) else found


def _repeats(found: ReadSamples) -> bool:
    """Whether examples are the same however torch's stream stands."""
    places = [int(place) for place in found.indices[:_TRIED]]
    reads = []
    for seed in (1, 2, 3):
        with seeded(seed, torch.device("cpu")):
            reads.append([found.read(place) for place in places])
    first, *others = [list(leaves(read)) for read in reads]
    return all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def _hugging_face(data: Any, given: Datasets, what: str) -> Examples:
    names = list(data.column_names)
    target = _target(given, names, what)
    first = {name: data[0][name] for name in names}
    inputs = _inputs(given, [name for name in names if name != target and _is_numeric(first[name])], names, what)
    for name in inputs:
        if not _is_numeric(first[name]):
            raise DatasetError(f"{what}: the column {name!r} holds {_kind(first[name])}, expected numbers: encode it")
    if isinstance(first[target], str):  # names of classes
        data = data.class_encode_column(target)
    one_row = all(isinstance(first[name], int | float) for name in inputs)

    def read(place: int) -> tuple[Tree, Tree]:
        row = data[int(place)]
        if missing := [name for name in (*inputs, target) if row[name] is None]:
            raise ValueError(f"the column {missing[0]!r} is empty in row {place}: fill it, or drop the row")
        if one_row:
            return torch.tensor([float(row[name]) for name in inputs]), tensors(_listed(row[target]))
        x = tuple(_real(tensors(_listed(row[name]))) for name in inputs)
        return x[0] if len(x) == 1 else x, tensors(_listed(row[target]))

    return _kept(ReadSamples(read, np.arange(len(data))))


def _is_numeric(value: Any) -> bool:
    """Whether a model can take `value`: a number, lists of them, an array or a picture."""
    while isinstance(value, list) and value:
        value = value[0]
    return value is not None and not isinstance(value, str | bytes | Mapping)


def _listed(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, list) else value


def _frame(data: Any, given: Datasets, what: str) -> Examples:
    names = [str(name) for name in data.columns]
    target = _target(given, names, what)
    arrays = {name: np.asarray(data[name]) for name in names}
    numbers = [name for name in names if name != target and arrays[name].dtype.kind in "biuf"]
    inputs = _inputs(given, numbers, names, what)
    for name in inputs:
        if arrays[name].dtype.kind not in "biuf":
            raise DatasetError(f"{what}: the column {name!r} holds {arrays[name].dtype}, expected numbers: encode it")
    x = np.stack([arrays[name].astype(np.float32) for name in inputs], 1)
    y = arrays[target]
    if y.dtype.kind not in "biuf":
        _, y = np.unique(y, return_inverse=True)
    if np.isnan(x).any() or (y.dtype.kind == "f" and np.isnan(y).any()):
        raise DatasetError(f"{what} has empty cells: fill them, or drop their rows")
    return Samples(torch.from_numpy(x), tensors(y))


def _target(given: Datasets, names: list[str], what: str) -> str:
    if given.target in names:
        return str(given.target)
    said = "names no column to predict" if given.target is None else f"has no column {given.target!r}"
    raise DatasetError(f"{what} {said}: set target to one of {', '.join(names)}")


def _inputs(given: Datasets, usual: list[str], names: list[str], what: str) -> list[str]:
    inputs = usual if given.inputs is None else list(given.inputs)
    if missing := [name for name in inputs if name not in names]:
        raise DatasetError(f"{what} has no column {missing[0]!r}: set inputs to some of {', '.join(names)}")
    if not inputs:
        raise DatasetError(f"{what} has no column of numbers beside the target: set inputs")
    return inputs


def _columns_of(data: Any) -> dict[str, NDArray[Any]]:
    """What examples can be shared out by: the columns of a table."""
    if _is_frame(data):
        return {str(name): np.asarray(data[name]) for name in data.columns}
    if hasattr(data, "column_names") and hasattr(data, "features"):
        scalar = [name for name in data.column_names if isinstance(data[0][name], str | int | float)]
        return {name: np.asarray(data[name]) for name in scalar}
    return {}


def _together(each: Sequence[Examples]) -> tuple[Examples, list[NDArray[np.int64]]]:
    """Examples one after the other, and where each begins and ends."""
    starts = np.cumsum([0, *map(len, each)])
    parts = [np.arange(first, last) for first, last in pairwise(starts)]
    if all(isinstance(some, Samples) for some in each):
        return Samples(*joined([(some.x, some.y) for some in map(in_memory, each)])), parts

    def read(place: int) -> tuple[Tree, Tree]:
        which = int(np.searchsorted(starts, place, side="right")) - 1
        x, y = each[which].take(torch.tensor([place - int(starts[which])]))
        return mapped(x, _first), mapped(y, _first)

    return ReadSamples(read, np.arange(int(starts[-1]))), parts


def _first(tensor: Tensor) -> Tensor:
    return tensor[0]


def _labels(train: Examples) -> NDArray[np.int64] | None:
    """The class of every example, where targets are one whole number each."""
    if not isinstance(train, Samples):
        return _labels_read(train)
    y = train.y
    if not isinstance(y, Tensor) or y.is_floating_point() or y.dim() != 1 or int(y.min()) < 0:
        return None
    return y.long().numpy()


def _labels_read(train: Examples) -> NDArray[np.int64] | None:
    _, y = train.take(torch.arange(1))
    if not isinstance(y, Tensor) or y.is_floating_point() or y.dim() != 1:
        return None
    found = [int(train.take(torch.tensor([place]))[1]) for place in range(len(train))]
    return np.asarray(found, np.int64) if min(found) >= 0 else None


def _most(train: Examples) -> int:
    """How many classes whole-numbered targets of any shape show; 0 where they are real."""
    _, y = train.take(torch.arange(min(len(train), 4096)))
    whole = isinstance(y, Tensor) and not y.is_floating_point()
    return int(y.max()) + 1 if whole else 0


def _real(tree: Tree) -> Tree:
    """Inputs as models take them: bytes from 0 to 1."""
    return mapped(tree, lambda t: t.float().div(255) if t.dtype == torch.uint8 else t)


def _is_numbers(column: Any) -> bool:
    """Whether it is a list of numbers, or of such lists: an array as Python writes it."""
    while isinstance(column, list) and column:
        column = column[0]
    return isinstance(column, int | float)


def _flat(value: Any) -> Any:
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple) or (isinstance(value, list) and value and is_column(value[0])):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def _is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and hasattr(data, "dtypes") and hasattr(data, "__getitem__")


def is_column(data: Any) -> bool:
    """Whether `data` is an array, and so no whole dataset."""
    return isinstance(data, np.ndarray | Tensor) or (hasattr(data, "__array__") and not _is_frame(data))


def _is_data(found: Any) -> bool:
    if isinstance(found, str | bytes):
        return False
    pair = isinstance(found, tuple | list) and len(found) == 2
    return pair or _is_frame(found) or (hasattr(found, "__getitem__") and hasattr(found, "__len__"))


def _kind(value: Any) -> str:
    if isinstance(value, Tensor | tuple | list | Mapping):
        return form(value) if not isinstance(value, list) else f"a list of {len(value)}"
    return type(value).__name__
