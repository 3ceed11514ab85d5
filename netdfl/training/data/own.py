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

from netdfl.core.errors import DatasetError, expect, is_whole
from netdfl.training.data.dataset import Dataset
from netdfl.training.data.examples import Examples, ReadSamples, Samples, Tree, form, in_memory, joined, leaves, mapped
from netdfl.training.data.reading import (
    Asked,
    columns_of,
    from_arrays,
    from_frame,
    from_hugging_face,
    is_column,
    is_frame,
    is_numbers,
    kind_of,
    one_by_one,
)

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
    if isinstance(found, tuple | list) and len(found) == 2 and not (is_column(found[0]) or is_numbers(found[0])):
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
        columns = columns_of(given.train) | columns
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
        return from_hugging_face(data, Asked(given.target, given.inputs), what)
    if is_frame(data):
        return from_frame(data, Asked(given.target, given.inputs), what)
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
    """Examples one after the other, and where each begins and ends."""
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
    """The class of every example, where targets are one whole number each."""
    y = train.y if isinstance(train, Samples) else train.take(torch.arange(1))[1]
    if not isinstance(y, Tensor) or y.is_floating_point() or y.dim() != 1:
        return None
    if not isinstance(train, Samples):
        y = torch.tensor([int(train.take(torch.tensor([place]))[1]) for place in range(len(train))])
    return y.long().numpy() if int(y.min()) >= 0 else None


def _most(train: Examples) -> int:
    """How many classes whole-numbered targets of any shape show; 0 where they are real."""
    _, y = train.take(torch.arange(min(len(train), 4096)))
    whole = isinstance(y, Tensor) and not y.is_floating_point()
    return int(y.max()) + 1 if whole else 0


def _is_data(found: Any) -> bool:
    if isinstance(found, str | bytes):
        return False
    pair = isinstance(found, tuple | list) and len(found) == 2
    return pair or is_frame(found) or (hasattr(found, "__getitem__") and hasattr(found, "__len__"))
