"""Vectors without torch: numpy arrays with those tensor methods that simple mixing uses.

Importing torch takes longer than most simulations without training. So where no node trains, and all parts use only the
methods in this file, nodes hold these vectors, and torch is never imported. The same code works on tensors and on these
vectors, because it calls only methods that both have.
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
"""The size up to which the overhead of calls costs more than the arithmetic on a vector's numbers."""
FEW_BYTES = 256
"""The size up to which a Python loop over the numbers of a vector is faster than a call of numpy."""
Base: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Vector(Base):
    """A numpy array with the tensor methods that mixing, evaluation and checkpoints need; always on the CPU."""

    is_cpu, is_cuda = True, False
    device = "cpu"

    def add(self, other: Base, *, alpha: float = 1.0) -> Base:
        """Return `self` + `alpha` times `other`."""
        return self + other * alpha

    def add_(self, other: Base, *, alpha: float = 1.0) -> Base:
        """Add `alpha` times `other` in place."""
        self += other if alpha == 1.0 else other * alpha
        return self

    def sub_(self, other: Base) -> Base:
        """Subtract `other` in place."""
        self -= other
        return self

    def mul_(self, factor: float | Base) -> Base:
        """Multiply by `factor` in place."""
        self *= factor
        return self

    def div_(self, divisor: float) -> Base:
        """Divide by `divisor` in place."""
        self /= divisor
        return self

    def clone(self) -> Base:
        """Return a copy."""
        return self.copy()

    def new_zeros(self, shape: tuple[int, ...]) -> Base:
        """Return zeros of the same dtype."""
        return np.zeros(shape, self.dtype).view(Vector)

    def sum(self, dim: int | None = None) -> Any:  # type: ignore[override]  # numpy's own goes through Python
        """Return the sum of all numbers, or along `dim`."""
        return np.add.reduce(self, dim)

    def mean(self, dim: int | None = None) -> Any:  # type: ignore[override]  # as above
        """Return the mean of all numbers, or along `dim`."""
        return np.add.reduce(self, dim) / (self.size if dim is None else self.shape[dim])

    def square(self) -> Base:
        """Return the square of each number."""
        return np.multiply(self, self)

    def sqrt(self) -> Base:
        """Return the square root of each number."""
        return np.sqrt(self)

    def norm(self, dim: int | None = None, keepdim: bool = False) -> Base:
        """Return the Euclidean norm of the vector, or of each row."""
        if dim is None and self.ndim == 1:  # without BLAS, which sums in another order on another processor
            return np.asarray(np.sqrt(np.einsum("i,i->", self, self))).view(Vector)
        found = np.linalg.norm(self, axis=dim, keepdims=keepdim)
        return np.asarray(found).view(Vector)

    def addcmul(self, first: Base, second: Base) -> Base:
        """Return `self` + `first` times `second`."""
        found: Base = self + first * second
        return found

    def clamp(self, *, max: float) -> Base:
        """Return each number, limited to at most `max`."""
        return np.minimum(self, max)

    def expand_as(self, other: Base) -> Base:
        """View the numbers in the shape of `other`."""
        return np.broadcast_to(self, other.shape).view(Vector)

    def isfinite(self) -> NDArray[np.bool_]:
        """Test each number: true unless it is NaN or infinite."""
        return np.isfinite(self)

    def is_floating_point(self) -> bool:
        """Whether the numbers are floating-point."""
        return self.dtype.kind == "f"

    def numel(self) -> int:
        """Return the count of numbers."""
        return self.size

    def to(self, dtype: DTypeLike) -> Base:
        """Return the vector, or a copy of another dtype."""
        return self.astype(dtype, copy=False)

    def double(self) -> Base:
        """Return the vector, or a copy in float64."""
        return self.to(np.float64)

    def detach(self) -> Base:
        """Return the vector itself, because it has no gradient graph."""
        return self

    def cpu(self) -> Base:
        """Return the vector itself, because it is on the CPU."""
        return self

    def numpy(self) -> Base:
        """Return a view of the numbers as a plain numpy array."""
        return self.view(np.ndarray)


def vector(numbers: ArrayLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return a new `Vector` of `numbers`, typed as a tensor for code that uses only the methods common to both."""
    return np.array(numbers, dtype).view(Vector)  # type: ignore[return-value]


def weighted_sum(own: Tensor, self_weight: float, others: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return `self_weight` times `own` plus each of `weights` times its vector in `others`, summed in this order."""
    if isinstance(own, Vector) and own.nbytes <= SHORT_BYTES:  # a few calls for all, not some for each
        rows = np.frombuffer(b"".join((own, *others)), own.dtype).reshape(1 + len(others), own.size)
        return np.add.reduce(rows * _column((self_weight, *weights), own.dtype), 0).view(Vector)
    found = own * self_weight
    for other, weight in zip(others, weights, strict=True):
        found.add_(other, alpha=weight)
    return found


@lru_cache(maxsize=4096)
def _column(weights: tuple[float, ...], dtype: np.dtype[Any]) -> Base:
    """Return mixing weights as a column that multiplies rows. Cached, as weights are often the same in every round."""
    return np.array(weights, dtype)[:, None]


def finite(x: Tensor) -> bool:
    """Return whether no number of `x` is NaN or infinite."""
    if isinstance(x, Vector):
        few = x.nbytes <= FEW_BYTES
        return (few and isfinite(sum(x.tolist()))) or b"\0" not in np.isfinite(x).tobytes()
    return isfinite(float(x.sum())) or bool(x.isfinite().all())


def to_array(x: Vector) -> Array:
    """Copy `x` into an array for a message."""
    return Array(name_of(x.dtype), x.shape, memoryview(x.tobytes()))


def of_array(array: Array) -> Tensor:
    """Return a `Vector` that shares the memory of a message's array. Do not write to the vector."""
    return np.frombuffer(array.data, array.dtype).reshape(array.shape).view(Vector)  # type: ignore[return-value]


name_of: Callable[[np.dtype[Any]], str] = cache(lambda dtype: dtype.name)  # numpy makes it anew each time


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Return whether `value` is a `Vector` or a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return isinstance(value, Vector) or (torch is not None and isinstance(value, torch.Tensor))
