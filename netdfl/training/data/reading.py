"""Arrays, and whatever gives one example at a time, read as examples; what a value is, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netdfl.core.errors import DatasetError
from netdfl.training.data.examples import Examples, ReadSamples, Samples, in_memory
from netdfl.training.data.trees import Tree, form, leaves, mapped, tensors
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
