"""Vectors without torch: numpy arrays that answer to the names a tensor has, as far as plain mixing asks for them.

To import torch takes longer than most simulations without training. So where nobody trains, and no part asks for more
than this file has, nodes hold these vectors, and torch is never imported. What is written for tensors works on both:
it calls methods, of which these have the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from netdfl.core.types import Array

if TYPE_CHECKING:
    from torch import Tensor

SHORT_BYTES = 4096
"""Up to here a vector costs what is called for it, and not what is in it."""
FEW_BYTES = 256
"""Up to here Python looks through the numbers of a vector sooner than numpy begins to."""
Base: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Vector(Base):
    """A numpy array with the methods of a tensor that mixing, judging and keeping a state need; always on the CPU."""

    is_cpu, is_cuda = True, False
    device = "cpu"

    def add(self, other: Base, *, alpha: float = 1.0) -> Base:
        """`self` + `alpha` times `other`."""
        return self + other * alpha

    def add_(self, other: Base, *, alpha: float = 1.0) -> Base:
        """Add `alpha` times `other` in place."""
        self += other if alpha == 1.0 else other * alpha
        return self

    def sub_(self, other: Base) -> Base:
        """Subtract in place."""
        self -= other
        return self

    def mul_(self, factor: float | Base) -> Base:
        """Multiply in place."""
        self *= factor
        return self

    def div_(self, divisor: float) -> Base:
        """Divide in place."""
        self /= divisor
        return self

    def clone(self) -> Base:
        """A copy."""
        return self.copy()

    def new_zeros(self, shape: tuple[int, ...]) -> Base:
        """Zeros of the same kind."""
        return np.zeros(shape, self.dtype).view(Vector)

    def sum(self, dim: int | None = None) -> Any:  # type: ignore[override]  # numpy's own goes through Python
        """The sum of all numbers, or along `dim`."""
        return np.add.reduce(self, dim)

    def mean(self, dim: int | None = None) -> Any:  # type: ignore[override]  # as above
        """The mean of all numbers, or along `dim`."""
        return np.add.reduce(self, dim) / (self.size if dim is None else self.shape[dim])

    def square(self) -> Base:
        """Each number's square."""
        return np.multiply(self, self)

    def sqrt(self) -> Base:
        """Each number's root."""
        return np.sqrt(self)

    def norm(self, dim: int | None = None, keepdim: bool = False) -> Base:
        """The Euclidean norm, or that of each row."""
        if dim is None and self.ndim == 1:  # without BLAS, which sums in another order on another processor
            return np.asarray(np.sqrt(np.einsum("i,i->", self, self))).view(Vector)
        found = np.linalg.norm(self, axis=dim, keepdims=keepdim)
        return np.asarray(found).view(Vector)

    def addcmul(self, first: Base, second: Base) -> Base:
        """`self` + `first` times `second`."""
        found: Base = self + first * second
        return found

    def clamp(self, *, max: float) -> Base:
        """Each number, or `max` where that is less."""
        return np.minimum(self, max)

    def expand_as(self, other: Base) -> Base:
        """The same numbers in the shape of `other`."""
        return np.broadcast_to(self, other.shape).view(Vector)

    def isfinite(self) -> NDArray[np.bool_]:
        """Which numbers are neither NaN nor infinite."""
        return np.isfinite(self)

    def is_floating_point(self) -> bool:
        """Whether it holds floating-point numbers."""
        return self.dtype.kind == "f"

    def numel(self) -> int:
        """How many numbers there are."""
        return self.size

    def to(self, dtype: DTypeLike) -> Base:
        """Itself, or a copy of another dtype."""
        return self.astype(dtype, copy=False)

    def double(self) -> Base:
        """Itself, or a copy in float64."""
        return self.to(np.float64)

    def detach(self) -> Base:
        """Itself."""
        return self

    def cpu(self) -> Base:
        """Itself."""
        return self

    def numpy(self) -> Base:
        """As a plain array."""
        return self.view(np.ndarray)


def vector(numbers: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    """A fresh `Vector`; whoever takes it for a tensor asks no more of it than it has."""
    return np.array(numbers, dtype).view(Vector)  # type: ignore[return-value]


def weighted_sum(own: Tensor, self_weight: float, others: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """`self_weight` times `own` and each weight times its vector, added up in this order: a fresh vector."""
    if isinstance(own, Vector) and own.nbytes <= SHORT_BYTES:  # a few calls for all, not some for each
        rows = np.frombuffer(b"".join((own, *others)), own.dtype).reshape(1 + len(others), own.size)
        return np.add.reduce(rows * _column((self_weight, *weights), own.dtype), 0).view(Vector)
    found = own * self_weight
    for other, weight in zip(others, weights, strict=True):
        found.add_(other, alpha=weight)
    return found


@lru_cache(maxsize=4096)
def _column(weights: tuple[float, ...], dtype: np.dtype[Any]) -> Base:
    """Weights as a factor of rows; a node has the same in every round of a graph that stays."""
    return np.array(weights, dtype)[:, None]


def finite(x: Tensor) -> bool:
    """Whether no number of `x` is NaN or infinite: a pass over them, another where large ones add up to it."""
    if isinstance(x, Vector):
        few = x.nbytes <= FEW_BYTES
        return (few and isfinite(sum(x.tolist()))) or b"\0" not in np.isfinite(x).tobytes()
    return isfinite(float(x.sum())) or bool(x.isfinite().all())


def to_array(x: Vector) -> Array:
    """A copy of `x` as what travels."""
    return Array(name_of(x.dtype), x.shape, memoryview(x.tobytes()))


def of_array(array: Array) -> Tensor:
    """View an array that came as a `Vector` that shares its memory. Reading is all that is allowed."""
    return np.frombuffer(array.data, array.dtype).reshape(array.shape).view(Vector)  # type: ignore[return-value]


name_of: Callable[[np.dtype[Any]], str] = cache(lambda dtype: dtype.name)  # numpy makes it anew each time


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether it is a `Vector` or one of torch's tensors; never imports torch."""
    torch = sys.modules.get("torch")
    return isinstance(value, Vector) or (torch is not None and isinstance(value, torch.Tensor))
