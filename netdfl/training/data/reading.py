"""The reading of arrays, tables and indexed datasets as examples, and descriptions of values as text.

Tables are data frames of pandas or polars, and `datasets.Dataset` of Hugging Face.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netdfl.core.errors import DatasetError
from netdfl.training.data.columns import Column, is_frame, is_scalar, shown
from netdfl.training.data.examples import (
    Examples,
    ReadSamples,
    Samples,
    Tree,
    form,
    in_memory,
    leaves,
    mapped,
    targets,
    tensors,
)
from netdfl.training.data.kinds import InputKinds, kinds_of
from netdfl.training.data.tables import ColumnRequest, ReadExamples, from_table, inputs_of, target_of
from netdfl.training.drawing import seeded

MOST_IN_MEMORY = 1 << 30
"""The most bytes of examples, read one by one at first, that are then kept in memory."""
_TRIED, _NUMBER = 6, 8


def from_arrays(columns: tuple[Any, ...], what: str) -> ReadExamples:
    """Return examples from arrays, the last of which has the targets; memory-mapped ones are read on demand.

    Raises DatasetError for unequal lengths; its message calls the data `what`.
    """
    columns = tuple(np.asarray(column) if is_numbers(column) else column for column in columns)
    lengths = [len(next(_flat(column))) for column in columns]
    if len(set(lengths)) > 1:
        raise DatasetError(f"{what} has {lengths[0]} inputs and {lengths[-1]} targets: give as many of both")
    inputs = columns[0] if len(columns) <= 2 else columns[:-1]
    memory = [each for each in _flat(columns) if isinstance(each, np.memmap)]
    if memory:  # larger than memory, perhaps: read what is asked for
        return one_by_one(_Rows(inputs, columns[-1]), what)
    given = tensors(inputs)
    return ReadExamples(Samples(real(given), targets(columns[-1])), kinds=kinds_of(given))


@dataclass(frozen=True)
class _Rows:
    """Examples from memory-mapped arrays, read one row at a time."""

    inputs: Any
    targets: Any

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        return np.array(self.inputs[place]), np.array(self.targets[place])


def one_by_one(data: Any, what: str) -> ReadExamples:
    """Return the examples of an indexed dataset of pairs (input, target).

    Raises DatasetError for an empty one, which the message calls `what`.
    """
    kinds = InputKinds()

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
        inputs = tensors(item[0] if len(item) == 2 else tuple(item[:-1]))
        kinds.check(inputs)
        return real(inputs), targets(item[-1])

    if not len(data):
        raise DatasetError(f"{what} has no examples: give at least one")
    examples = kept(ReadSamples(read, np.arange(len(data))))
    return ReadExamples(examples, kinds=kinds.kinds)


def kept(found: ReadSamples) -> Examples:
    """Read examples into memory if they are small and equal at each reading; else leave them to be read on demand.

    Examples are not equal at each reading if the reading of any of them draws from a global random generator.
    """
    places = found.indices[np.unique(np.linspace(0, len(found) - 1, _TRIED).astype(np.int64))].tolist()
    first = [found.read(place) for place in places]
    nbytes = sum(leaf.nbytes for leaf in leaves(first)) / len(first)
    if nbytes * len(found) > MOST_IN_MEMORY or not _repeats(found, places):
        return found
    with seeded(0, torch.device("cpu")) as drew:
        held = in_memory(found)
        return found if drew() else held


def _repeats(found: ReadSamples, places: Sequence[int]) -> bool:
    """Return whether readings of some places are equal, whatever state the process's random generators have."""
    reads = []
    for seed in (1, 2, 3):
        with seeded(seed, torch.device("cpu")):
            reads.append([found.read(place) for place in places])
    first, *others = [list(leaves(read)) for read in reads]
    return all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def real(tree: Tree) -> Tree:
    """Convert model inputs to real numbers: bytes become numbers from 0 to 1."""
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
    """Return whether `column` is a list of numbers, or of such lists."""
    while isinstance(column, list) and column:
        column = column[0]
    return isinstance(column, int | float)


def is_column(data: Any) -> bool:
    """Return whether `data` is a single array, and therefore not a whole dataset."""
    return isinstance(data, np.ndarray | Tensor) or (hasattr(data, "__array__") and not is_frame(data))


def kind_of(value: Any) -> str:
    """Describe a value in a few words: its type, or the shapes of its tensors."""
    if isinstance(value, Tensor | tuple | list | Mapping):
        return form(value) if not isinstance(value, list) else f"a list of {len(value)}"
    return type(value).__name__


def from_hugging_face(data: Any, columns: Mapping[str, Column], asked: ColumnRequest, what: str) -> ReadExamples:
    """Return examples from the rows of a `datasets.Dataset`; `columns` are its scalar columns.

    `asked` is the user's choice of columns, and `what` names the data in messages. Raises DatasetError for empty cells,
    and for a column that isn't there or holds no numbers.
    """
    names = list(data.column_names)
    target = target_of(asked, names, what)
    first = {name: shown(data, name) for name in names}
    usual = [name for name in names if name != target and _is_numeric(first[name])]
    inputs = inputs_of(asked, usual, names, what)
    small = len(data) * len(names) * _NUMBER <= MOST_IN_MEMORY
    if small and all(is_scalar(first[name]) for name in (target, *inputs)):
        return from_table({name: columns[name] for name in names if name in columns}, asked, what)
    for name in inputs:
        if not _is_numeric(first[name]):
            raise DatasetError(f"{what}: the column {name!r} holds {kind_of(first[name])}, {asked.expected()}")
    number = {name: place for place, name in enumerate(asked.classes)}
    kinds = InputKinds()

    def read(place: int) -> tuple[Tree, Tree]:
        row = data[int(place)]
        if missing := [name for name in (*inputs, target) if row[name] is None]:
            raise ValueError(f"the column {missing[0]!r} is empty in row {place}: fill it, or drop the row")
        y = targets(number[row[target]] if number else _in_array(row[target]))
        if all(is_scalar(first[name]) for name in inputs):
            return torch.tensor([float(row[name]) for name in inputs]), y
        x = tuple(tensors(_in_array(row[name])) for name in inputs)
        kinds.check(x)
        return real(x[0] if len(x) == 1 else x), y

    examples = kept(ReadSamples(read, np.arange(len(data))))
    return ReadExamples(examples, columns=columns, inputs=inputs, kinds=kinds.kinds)


def _is_numeric(value: Any) -> bool:
    """Return whether a model can take `value`: a number, lists of numbers, an array or a picture."""
    while isinstance(value, list) and value:
        value = value[0]
    return value is not None and not isinstance(value, str | bytes | Mapping)


def _in_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, list) else value
