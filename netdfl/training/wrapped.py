"""A node's data seen through a wrapper around its gradients: how SAM's other ascents reach any solver."""

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
    """A `Wrap` of vectors and numbers whose code works on rows too: then it can be computed for many nodes at once."""

    moved: ClassVar[tuple[str, ...]] = ()
    """The vectors that it changes in place."""

    @property
    def numbers(self) -> tuple[object, ...]:
        """What must be equal in wraps that are stacked."""
        return tuple(value for _, value in self._fields() if not isinstance(value, Tensor))

    @abstractmethod
    def __call__(self, gradient: Gradient) -> Gradient:
        """The wrapped gradient."""

    def stacked(self: W, wraps: Sequence[W]) -> W:
        """One wrap of matrices, with a row for each of `wraps`, which are like this one."""
        return replace(self, **{name: torch.stack([getattr(each, name) for each in wraps]) for name in self._vectors()})

    def first(self: W, num: int) -> W:
        """The first rows of a stacked wrap; what moves, moves in both."""
        return replace(self, **{name: getattr(self, name)[:num] for name in self._vectors()})

    def settle(self: W, wraps: Sequence[W]) -> None:
        """Bring what moved in a stacked wrap back to the `wraps` that it was made of."""
        for name in self.moved:
            for row, each in zip(getattr(self, name), wraps, strict=True):
                getattr(each, name).copy_(row)

    def _fields(self) -> Iterator[tuple[str, object]]:
        return ((field.name, getattr(self, field.name)) for field in fields(self))

    def _vectors(self) -> list[str]:
        return [name for name, value in self._fields() if isinstance(value, Tensor)]


class Wrapped:
    """`data` with `wrap` around the gradient of every local step. See `LocalData`."""

    def __init__(self, data: LocalData, wrap: Wrap) -> None:
        """All else is the data's own."""
        self.data, self.wrap = data, wrap
        self.objective, self.num_samples, self.shapes = data.objective, data.num_samples, data.shapes
        self.still = int(getattr(data, "still", 0))

    @property
    def writes(self) -> bool:
        """As the data's."""
        return bool(getattr(self.data, "writes", False))

    @property
    def written(self) -> Tensor | None:
        """As the data's."""
        return getattr(self.data, "written", None)

    def steps(self, *, epochs: int | None = None, steps: int | None = None) -> Iterator[Gradient]:
        """The data's steps, wrapped."""
        return map(self.wrap, self.data.steps(epochs=epochs, steps=steps))

    def loss(self, at: Tensor) -> float:
        """The data's own."""
        return self.data.loss(at)
