"""The contract of a compressor: it turns a flat vector into named arrays and small metadata, and back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import numpy as np

from netdfl.core.renamed import renamed
from netdfl.core.types import Array, Scalar

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class EncodedVector:
    """A compressed vector of `dim` numbers: named arrays, and small metadata such as counts and seeds."""

    dim: int
    arrays: Mapping[str, Array]
    meta: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The size of all arrays in bytes, without the metadata."""
        return sum(array.nbytes for array in self.arrays.values())


class Compressor(Protocol):
    """The contract of a compressor: a stateless map from vectors to few bytes.

    `unbiased`: E[C(x)] = x. `variance(d)` bounds E|x - C(x)|^2 / |x|^2 for every x of d numbers. `contraction(d)`: the
    largest guaranteed omega with E|x - C(x)|^2 <= (1 - omega)|x|^2, so 1 - variance(d), or 0 if this is negative.
    All three hold in exact arithmetic. A subclass inherits defaults of `unbiased` and `contraction`.
    """

    __slots__ = ()

    @property
    def unbiased(self) -> bool:
        """Whether the expected decoded vector, over the compressor's randomness, is the vector itself."""
        return False

    def contraction(self, dim: int) -> float:
        """Return the largest guaranteed omega in [0, 1] with E|x - C(x)|^2 <= (1 - omega)|x|^2 for `dim` numbers.

        By default it is 1 - `variance(dim)`, or 0 where that is negative.
        """
        return max(0.0, 1.0 - self.variance(dim))

    @abstractmethod
    def variance(self, dim: int) -> float:
        """Return the bound of E|x - C(x)|^2 / |x|^2 for vectors of `dim` numbers."""

    @abstractmethod
    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
        """Encode a flat floating-point vector of shape (d,). The same seed gives the same bytes.

        Raises ValueError where a number is NaN or infinite.
        """

    @abstractmethod
    def decompress(self, encoded: EncodedVector) -> Tensor:
        """Decode to a new vector of shape (d,). Raises MalformedMessage if the received contents are invalid."""


@runtime_checkable
class AddingCompressor(Protocol):
    """A compressor that decodes and adds to a vector in one operation, which is faster than two."""

    def add_to(self, base: Tensor, encoded: EncodedVector) -> Tensor:
        """Return `base`, shape (d,), plus the decoded vector, bit for bit as if decoded first and then added.

        Raises MalformedMessage for invalid contents.
        """


def add_to(compressor: Compressor, base: Tensor, encoded: EncodedVector) -> Tensor:
    """Return `base` plus the vector that `compressor` decodes, as a new vector. Raises MalformedMessage if invalid."""
    if _adds(type(compressor)):
        found: Tensor = cast("AddingCompressor", compressor).add_to(base, encoded)
        return found
    return base + compressor.decompress(encoded).to(base.device, base.dtype)


@cache
def _adds(kind: type) -> bool:
    """Return whether compressors of this class have a method `add_to`; cached because the check is slow."""
    return issubclass(kind, AddingCompressor)


if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Adding": "AddingCompressor", "Encoded": "EncodedVector"})
