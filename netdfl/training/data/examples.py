"""Training and test examples, in memory or read on demand: inputs and targets by index.

Inputs and targets are trees: a tensor, or tuples and mappings of tensors with a common first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

Tree: TypeAlias = Any
"""A tensor, or a tuple or mapping of trees."""

_WHOLE = frozenset((torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64))


def leaves(tree: Tree) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples and mappings (a tree), in order."""
    if isinstance(tree, Tensor):
        yield tree
        return
    for part in tree.values() if isinstance(tree, Mapping) else tree:
        yield from leaves(part)


def mapped(tree: Tree, function: Callable[[Tensor], Tensor]) -> Tree:
    """Return a tree of the same structure, with `function` applied to each tensor."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {name: mapped(part, function) for name, part in tree.items()}
    return tuple(mapped(part, function) for part in tree)


def joined(trees: list[Tree], how: Callable[[list[Tensor]], Tensor] = torch.cat) -> Tree:
    """Join trees of tensors with the same structure into one, by applying `how` to the tensors at each position."""
    first = trees[0]
    if isinstance(first, Tensor):
        return how(trees)
    if isinstance(first, Mapping):
        return {name: joined([tree[name] for tree in trees], how) for name in first}
    return tuple(joined(list(parts), how) for parts in zip(*trees, strict=True))


def tensors(value: Any) -> Tree:
    """Convert a user's arrays, numbers and pictures to tensors: floats to float32, integers to int64.

    Bytes stay bytes, and booleans booleans. Raises TypeError for values that no tensor can hold.
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
    """Convert targets as `tensors` does, but bytes to int64, too, because losses take classes only in that type."""
    return mapped(tensors(value), lambda tensor: tensor.long() if tensor.dtype == torch.uint8 else tensor)


def _picture(image: Any) -> Tensor:
    """Convert a picture to a tensor (channels, height, width) with values from 0 to 1; real numbers stay unchanged.

    Raises TypeError for a picture with a palette.
    """
    if image.mode == "P":
        remedy = "give .convert('RGB'), or np.array(picture) where they are classes of pixels"
        raise TypeError(f"the numbers of a picture with a palette (mode P) are no colors: {remedy}")
    array = np.asarray(image)
    array = array[None] if array.ndim == 2 else np.moveaxis(array, 2, 0)
    white = 65535 if image.mode.startswith("I") else 1 if image.mode in ("1", "F") else 255
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32) / np.float32(white))


def shape_of(tree: Tree) -> tuple[int, ...]:
    """Return the shape of one example's input, taken from the first tensor."""
    return tuple(next(leaves(tree)).shape[1:])


def form(tree: Tree) -> str:
    """Describe the types and shapes of a tree's tensors as text, such as `float32 (32, 1, 8, 8)`."""
    if isinstance(tree, Tensor):
        return f"{str(tree.dtype).removeprefix('torch.')} {tuple(tree.shape)}"
    if isinstance(tree, Mapping):
        return "{" + ", ".join(f"{name}: {form(part)}" for name, part in tree.items()) + "}"
    if isinstance(tree, tuple | list):
        return "(" + ", ".join(form(part) for part in tree) + ")"
    return type(tree).__name__


class Examples(Protocol):
    """N examples. Inputs and targets are tensors, or tuples and mappings of tensors."""

    def __len__(self) -> int: ...

    def take(self, indices: Tensor) -> tuple[Tree, Tree]:
        """Return inputs and targets of the examples `indices`, in that order, on the examples' device."""

    def only(self, indices: NDArray[np.int64]) -> Examples:
        """Return the examples with these indices."""

    def to(self, device: str | torch.device) -> Examples:
        """Return the examples with their tensors on `device`."""


@dataclass(frozen=True)
class Samples(Examples):
    """Examples in memory: inputs and targets with a first axis of N examples, all on one device."""

    x: Tree
    y: Tree

    def __len__(self) -> int:
        return len(next(leaves(self.y)))

    @override
    def take(self, indices: Tensor) -> tuple[Tree, Tree]:
        indices = indices.to(next(leaves(self.y)).device)

        def chosen(tensor: Tensor) -> Tensor:
            return tensor.index_select(0, indices)

        return mapped(self.x, chosen), mapped(self.y, chosen)

    @override
    def only(self, indices: NDArray[np.int64]) -> Samples:
        return Samples(*self.take(torch.from_numpy(np.asarray(indices, np.int64))))

    @override
    def to(self, device: str | torch.device) -> Samples:
        return Samples(mapped(self.x, lambda t: t.to(device)), mapped(self.y, lambda t: t.to(device)))


@dataclass(frozen=True)
class ReadSamples(Examples):
    """Examples that are read one by one on demand: `read(k)` returns the k-th input and target."""

    read: Callable[[int], tuple[Tree, Tree]]
    indices: NDArray[np.int64]
    device: str | torch.device = "cpu"

    def __len__(self) -> int:
        return len(self.indices)

    @override
    def take(self, indices: Tensor) -> tuple[Tree, Tree]:
        found = [self.read(int(self.indices[place])) for place in indices.tolist()]
        both = joined([(x, y) for x, y in found], torch.stack)
        x, y = mapped(both, lambda tensor: tensor.to(self.device))
        return x, y

    @override
    def only(self, indices: NDArray[np.int64]) -> ReadSamples:
        return ReadSamples(self.read, self.indices[indices], self.device)

    @override
    def to(self, device: str | torch.device) -> ReadSamples:
        return ReadSamples(self.read, self.indices, device)


def with_whole_targets(examples: Examples) -> Examples:
    """Return the same examples, with targets that are one boolean tensor as int64, as netdfl's own losses need."""
    if isinstance(examples, Samples):
        return replace(examples, y=_whole(examples.y))
    if not isinstance(examples, ReadSamples):
        return examples
    read = examples.read

    def whole(place: int) -> tuple[Tree, Tree]:
        x, y = read(place)
        return x, _whole(y)

    return replace(examples, read=whole)


def _whole(y: Tree) -> Tree:
    return y.long() if isinstance(y, Tensor) and y.dtype == torch.bool else y


def in_batches(examples: Examples, size: int) -> Iterator[tuple[Tree, Tree]]:
    """Yield all examples in order, `size` at a time."""
    for first in range(0, len(examples), size):
        yield examples.take(torch.arange(first, min(first + size, len(examples))))


def in_memory(examples: Any) -> Samples:
    """Read all examples into memory."""
    if isinstance(examples, Samples):
        return examples
    return Samples(*examples.take(torch.arange(len(examples))))
