"""Examples, in memory or read when they are asked for: inputs and targets by their numbers.

Inputs and targets are trees: a tensor, or tuples and mappings of tensors that have their first axis in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Tree: TypeAlias = Any
"""A tensor, or a tuple or mapping of trees."""

_WHOLE = frozenset(
    (torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64, torch.bool),
)


def leaves(tree: Tree) -> Iterator[Tensor]:
    """The tensors of a tree, in order."""
    if isinstance(tree, Tensor):
        yield tree
        return
    for part in tree.values() if isinstance(tree, Mapping) else tree:
        yield from leaves(part)


def mapped(tree: Tree, function: Callable[[Tensor], Tensor]) -> Tree:
    """A tree of the same form, with `function` of each tensor."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {name: mapped(part, function) for name, part in tree.items()}
    return tuple(mapped(part, function) for part in tree)


def joined(trees: list[Tree], how: Callable[[list[Tensor]], Tensor] = torch.cat) -> Tree:
    """One tree of many that have the same form: their tensors, joined by `how`."""
    first = trees[0]
    if isinstance(first, Tensor):
        return how(trees)
    if isinstance(first, Mapping):
        return {name: joined([tree[name] for tree in trees], how) for name in first}
    return tuple(joined(list(parts), how) for parts in zip(*trees, strict=True))


def tensors(value: Any) -> Tree:
    """Arrays, numbers and pictures of a user's, as tensors: real ones as float32, whole ones as int64, bytes as bytes.

    Raises TypeError for what no tensor can be made of.
    """
    if isinstance(value, Mapping):
        return {name: tensors(part) for name, part in value.items()}
    if isinstance(value, tuple | list) and not all(isinstance(part, int | float) for part in value):
        return tuple(tensors(part) for part in value)
    if isinstance(value, str | bytes) or value is None:
        raise TypeError(f"{value!r:.40} is no number: give numbers, of classes from 0 on")
    if hasattr(value, "getbands"):  # a PIL image
        value = _picture(value)
    found = value if isinstance(value, Tensor) else torch.as_tensor(np.require(value, requirements="W"))
    if found.dtype in (torch.float64, torch.float16, torch.bfloat16):
        return found.float()
    return found.long() if found.dtype in _WHOLE else found


def targets(value: Any) -> Tree:
    """As `tensors`, with bytes as int64 too: losses take classes in no other type."""
    return mapped(tensors(value), lambda tensor: tensor.long() if tensor.dtype == torch.uint8 else tensor)


def _picture(image: Any) -> Tensor:
    """(channels, height, width), from 0 to 1."""
    array = np.asarray(image)
    array = array[None] if array.ndim == 2 else np.moveaxis(array, 2, 0)
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32) / np.float32(255))


def shape_of(tree: Tree) -> tuple[int, ...]:
    """The shape of one example's input: of the first tensor, without the axis of examples."""
    return tuple(next(leaves(tree)).shape[1:])


def form(tree: Tree) -> str:
    """A tree in words: `float32 (32, 1, 8, 8)`."""
    if isinstance(tree, Tensor):
        return f"{str(tree.dtype).removeprefix('torch.')} {tuple(tree.shape)}"
    if isinstance(tree, Mapping):
        return "{" + ", ".join(f"{name}: {form(part)}" for name, part in tree.items()) + "}"
    if isinstance(tree, tuple | list):
        return "(" + ", ".join(form(part) for part in tree) + ")"
    return type(tree).__name__


class Examples(Protocol):
    """N examples. Inputs and targets are tensors, or tuples and mappings of tensors; see `trees`."""

    def __len__(self) -> int: ...

    def take(self, indices: Tensor) -> tuple[Tree, Tree]:
        """Inputs and targets of the examples `indices`, in that order, on the examples' device."""

    def only(self, indices: NDArray[np.int64]) -> Examples:
        """These examples alone."""

    def to(self, device: str | torch.device) -> Examples:
        """The same, whose tensors are on `device`."""


@dataclass(frozen=True)
class Samples:
    """Examples in memory: inputs and targets whose first axis is of N examples, all on one device."""

    x: Tree
    y: Tree

    def __len__(self) -> int:
        return len(next(leaves(self.y)))

    def take(self, indices: Tensor) -> tuple[Tree, Tree]:
        """See `Examples`."""
        indices = indices.to(next(leaves(self.y)).device)

        def chosen(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, indices)

        return mapped(self.x, chosen), mapped(self.y, chosen)

    def only(self, indices: NDArray[np.int64]) -> Samples:
        """See `Examples`."""
        return Samples(*self.take(torch.from_numpy(np.asarray(indices, np.int64))))

    def to(self, device: str | torch.device) -> Samples:
        """See `Examples`."""
        return Samples(mapped(self.x, lambda t: t.to(device)), mapped(self.y, lambda t: t.to(device)))


@dataclass(frozen=True)
class ReadSamples:
    """Examples that are read one by one when they are asked for: `read(k)` gives the k-th input and target."""

    read: Callable[[int], tuple[Tree, Tree]]
    indices: NDArray[np.int64]
    device: str | torch.device = "cpu"

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, indices: Tensor) -> tuple[Tree, Tree]:
        """See `Examples`."""
        found = [self.read(int(self.indices[place])) for place in indices.tolist()]
        both = joined([(x, y) for x, y in found], torch.stack)
        x, y = mapped(both, lambda tensor: tensor.to(self.device))
        return x, y

    def only(self, indices: NDArray[np.int64]) -> ReadSamples:
        """See `Examples`."""
        return ReadSamples(self.read, self.indices[indices], self.device)

    def to(self, device: str | torch.device) -> ReadSamples:
        """See `Examples`."""
        return ReadSamples(self.read, self.indices, device)


def in_batches(examples: Examples, size: int) -> Iterator[tuple[Tree, Tree]]:
    """All examples in their order, `size` at a time."""
    for first in range(0, len(examples), size):
        yield examples.take(torch.arange(first, min(first + size, len(examples))))


def in_memory(examples: Any) -> Samples:
    """All examples, read."""
    if isinstance(examples, Samples):
        return examples
    return Samples(*examples.take(torch.arange(len(examples))))
