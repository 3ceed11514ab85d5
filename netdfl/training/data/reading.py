"""Arrays, tables, and whatever gives one example at a time, read as examples; what a value is, in words.

Tables are data frames of pandas or polars, and `datasets.Dataset` of Hugging Face.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.core.errors import DatasetError
from netdfl.training.data.examples import Examples, ReadSamples, Samples, Tree, form, in_memory, leaves, mapped, tensors
from netdfl.training.drawing import seeded

MOST_IN_MEMORY = 1 << 30
"""Bytes up to which examples that are read one by one are kept once they were read."""
_TRIED = 4


def from_arrays(columns: tuple[Any, ...], what: str) -> Examples:
    """Arrays, the targets last; on disk still where they lie there. Raises DatasetError for other lengths."""
    columns = tuple(np.asarray(column) if is_numbers(column) else column for column in columns)
    lengths = [len(next(_flat(column))) for column in columns]
    if len(set(lengths)) > 1:
        raise DatasetError(f"{what} has {lengths[0]} inputs and {lengths[-1]} targets: give as many of both")
    inputs = columns[0] if len(columns) <= 2 else columns[:-1]
    memory = [each for each in _flat(columns) if isinstance(each, np.memmap)]
    if memory:  # larger than memory, perhaps: read what is asked for
        return one_by_one(_Rows(inputs, columns[-1]), what)
    return Samples(real(tensors(inputs)), tensors(columns[-1]))


@dataclass(frozen=True)
class _Rows:
    """Arrays that lie on disk, a row at a time."""

    inputs: Any
    targets: Any

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        return np.array(self.inputs[place]), np.array(self.targets[place])


def one_by_one(data: Any, what: str) -> Examples:
    """What has a length and gives pairs (input, target). Raises DatasetError where it is empty."""

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
            raise TypeError(f"an example is {kind_of(item)}: give pairs (input, target)")
        inputs = item[0] if len(item) == 2 else tuple(item[:-1])
        return real(tensors(inputs)), tensors(item[-1])

    if not len(data):
        raise DatasetError(f"{what} has no examples: give at least one")
    return kept(ReadSamples(read, np.arange(len(data))))


def kept(found: ReadSamples) -> Examples:
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


def real(tree: Tree) -> Tree:
    """Inputs as models take them: bytes from 0 to 1."""
    return mapped(tree, lambda t: t.float().div(255) if t.dtype == torch.uint8 else t)


def _flat(value: Any) -> Any:
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple) or (isinstance(value, list) and value and is_column(value[0])):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def is_numbers(column: Any) -> bool:
    """Whether it is a list of numbers, or of such lists: an array as Python writes it."""
    while isinstance(column, list) and column:
        column = column[0]
    return isinstance(column, int | float)


def is_frame(data: Any) -> bool:
    """Whether `data` is a table of pandas or polars."""
    return hasattr(data, "columns") and hasattr(data, "dtypes") and hasattr(data, "__getitem__")


def is_column(data: Any) -> bool:
    """Whether `data` is an array, and so no whole dataset."""
    return isinstance(data, np.ndarray | Tensor) or (hasattr(data, "__array__") and not is_frame(data))


def kind_of(value: Any) -> str:
    """What `value` is, in a few words."""
    if isinstance(value, Tensor | tuple | list | Mapping):
        return form(value) if not isinstance(value, list) else f"a list of {len(value)}"
    return type(value).__name__


@dataclass(frozen=True)
class Asked:
    """Which columns a user asked for: the one to predict, those that it is predicted from."""

    target: str | None
    inputs: Sequence[str] | None


def from_hugging_face(data: Any, asked: Asked, what: str) -> Examples:
    """The rows of a `datasets.Dataset`. Raises DatasetError for a column that isn't there, or holds no numbers."""
    names = list(data.column_names)
    target = _target(asked, names, what)
    first = {name: data[0][name] for name in names}
    inputs = _inputs(asked, [name for name in names if name != target and _is_numeric(first[name])], names, what)
    for name in inputs:
        if not _is_numeric(first[name]):
            raise DatasetError(f"{what}: the column {name!r} holds {kind_of(first[name])}, expected numbers: encode it")
    if isinstance(first[target], str):  # names of classes
        data = data.class_encode_column(target)
    one_row = all(isinstance(first[name], int | float) for name in inputs)

    def read(place: int) -> tuple[Tree, Tree]:
        row = data[int(place)]
        if missing := [name for name in (*inputs, target) if row[name] is None]:
            raise ValueError(f"the column {missing[0]!r} is empty in row {place}: fill it, or drop the row")
        if one_row:
            return torch.tensor([float(row[name]) for name in inputs]), tensors(_listed(row[target]))
        x = tuple(real(tensors(_listed(row[name]))) for name in inputs)
        return x[0] if len(x) == 1 else x, tensors(_listed(row[target]))

    return kept(ReadSamples(read, np.arange(len(data))))


def from_frame(data: Any, asked: Asked, what: str) -> Examples:
    """The rows of a data frame. Raises DatasetError for a column that isn't there, or holds no numbers."""
    names = [str(name) for name in data.columns]
    target = _target(asked, names, what)
    arrays = {name: np.asarray(data[name]) for name in names}
    numbers = [name for name in names if name != target and arrays[name].dtype.kind in "biuf"]
    inputs = _inputs(asked, numbers, names, what)
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


def _is_numeric(value: Any) -> bool:
    """Whether a model can take `value`: a number, lists of them, an array or a picture."""
    while isinstance(value, list) and value:
        value = value[0]
    return value is not None and not isinstance(value, str | bytes | Mapping)


def _listed(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, list) else value


def _target(asked: Asked, names: list[str], what: str) -> str:
    if asked.target in names:
        return str(asked.target)
    said = "names no column to predict" if asked.target is None else f"has no column {asked.target!r}"
    raise DatasetError(f"{what} {said}: set target to one of {', '.join(names)}")


def _inputs(asked: Asked, usual: list[str], names: list[str], what: str) -> list[str]:
    inputs = usual if asked.inputs is None else list(asked.inputs)
    if missing := [name for name in inputs if name not in names]:
        raise DatasetError(f"{what} has no column {missing[0]!r}: set inputs to some of {', '.join(names)}")
    if not inputs:
        raise DatasetError(f"{what} has no column of numbers beside the target: set inputs")
    return inputs


def columns_of(data: Any) -> dict[str, NDArray[Any]]:
    """What examples can be shared out by: the columns of a table."""
    if is_frame(data):
        return {str(name): np.asarray(data[name]) for name in data.columns}
    if hasattr(data, "column_names") and hasattr(data, "features"):
        scalar = [name for name in data.column_names if isinstance(data[0][name], str | int | float)]
        return {name: np.asarray(data[name]) for name in scalar}
    return {}
