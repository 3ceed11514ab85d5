"""Examples, in memory or read when they are asked for: inputs and targets by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from netdfl.training.data.trees import Tree, joined, leaves, mapped


class Examples(Protocol):
    """N examples. Inputs and targets are tensors, or tuples and mappings of tensors; see `trees`."""

    def __len__(self) -> int: ...

    def take(self, indices: Tensor) -> tuple[Tree, Tree]:
        """Inputs and targets of the examples `indices`, in that order, on the examples' device."""
        ...

    def only(self, indices: NDArray[np.int64]) -> Examples:
        """These examples alone."""
        ...

    def to(self, device: str | torch.device) -> Examples:
        """The same, whose tensors are on `device`."""
        ...


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
