"""Wrappers around the gradients of a node's data, which add an ascent like SAM's to any local solver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, TypeAlias, TypeVar

import torch
from torch import Tensor

from netdfl.training.base import Gradient, LocalData

Wrap: TypeAlias = Callable[[Gradient], Gradient]
W = TypeVar("W", bound="Rows")


@dataclass(frozen=True, eq=False)
class Rows(ABC):
    """A gradient wrapper that also works on a matrix whose rows are nodes' vectors, to compute them at once."""

    moved: ClassVar[tuple[str, ...]] = ()
    """The names of the vectors that the wrapper changes in place."""

    @property
    def numbers(self) -> tuple[object, ...]:
        """The wrapper's fields that are not tensors; they must be equal for all nodes that are computed together."""
        return tuple(value for _, value in self._fields() if not isinstance(value, Tensor))

    @abstractmethod
    def __call__(self, gradient: Gradient) -> Gradient:
        """Return a gradient function that takes `gradient` at another point, or changes it."""

    def stacked(self: W, wraps: Sequence[W]) -> W:
        """Return one wrapper for many nodes: each vector becomes a matrix with a row for each node of `wraps`."""
        return replace(self, **{name: torch.stack([getattr(each, name) for each in wraps]) for name in self._vectors()})

    def first(self: W, num: int) -> W:
        """Return this wrapper for many nodes reduced to the first `num`: views of the first rows of its matrices."""
        return replace(self, **{name: getattr(self, name)[:num] for name in self._vectors()})

    def settle(self: W, wraps: Sequence[W]) -> None:
        """Copy vectors that this wrapper for many nodes has changed back to the nodes' own wrappers, `wraps`."""
        for name in self.moved:
            for row, each in zip(getattr(self, name), wraps, strict=True):
                getattr(each, name).copy_(row)

    def _fields(self) -> Iterator[tuple[str, object]]:
        return ((field.name, getattr(self, field.name)) for field in fields(self))

    def _vectors(self) -> list[str]:
        return [name for name, value in self._fields() if isinstance(value, Tensor)]


class WrappedData:
    """A node's data with the gradient wrapper `wrap` around each local step."""

    def __init__(self, data: LocalData, wrap: Wrap) -> None:
        """Wrap the gradients of `data`; all other methods are the data's own."""
        self.data, self.wrap = data, wrap
        self.objective, self.num_samples, self.shapes = data.objective, data.num_samples, data.shapes
        self.still = int(getattr(data, "still", 0))

    @property
    def writes(self) -> bool:
        """Whether computing a gradient of the wrapped data may overwrite the vector that is given to it."""
        return bool(getattr(self.data, "writes", False))

    @property
    def written(self) -> Tensor | None:
        """The parameter vector of the last local step, if the model's forward pass wrote to parameters; else None.

        It has the written values. `Embedding(max_norm=...)`, for one, rescales its own parameters in a forward pass.
        """
        return getattr(self.data, "written", None)

    def steps(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Gradient]:
        """Return the data's steps, each wrapped."""
        return map(self.wrap, self.data.steps(epochs=epochs, steps=steps))

    def loss(self, at: Tensor) -> float:
        """Return the mean loss at `at`, as the wrapped data do."""
        return self.data.loss(at)
