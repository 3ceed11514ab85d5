"""The contract of a compressor: a flat vector in, named arrays and small metadata out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import numpy as np

from netdfl.core.types import Array, Scalar

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Encoded:
    """A compressed vector of `dim` numbers. `nbytes` counts its arrays; the wire adds its metadata."""

    dim: int
    arrays: Mapping[str, Array]
    meta: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays.values())


class Compressor(Protocol):
    """A map from vectors to few bytes. Stateless: memory (error feedback, copies) is the mixing's.

    `unbiased`: E[C(x)] = x. `variance(d)` bounds E|x - C(x)|^2 / |x|^2 for every x of d numbers.
    `contraction(d)`: the largest omega with E|x - C(x)|^2 <= (1 - omega)|x|^2 that is guaranteed,
    so 1 - variance(d), or 0 where that is negative. All hold in exact arithmetic.
    A class that names this one as its base has the first and the last for nothing.
    """

    __slots__ = ()

    @property
    def unbiased(self) -> bool:
        """Whether the mean over the compressor's own randomness is the vector itself; most are biased."""
        return False

    def contraction(self, dim: int) -> float:
        """omega in [0, 1] for vectors of `dim` numbers: by default what `variance` leaves of 1."""
        return max(0.0, 1.0 - self.variance(dim))

    @abstractmethod
    def variance(self, dim: int) -> float:
        """The bound of E|x - C(x)|^2 / |x|^2 for vectors of `dim` numbers."""

    @abstractmethod
    def compress(self, x: Tensor, rng: np.random.Generator) -> Encoded:
        """Encode a flat floating-point vector of shape (d,). The same seed gives the same bytes.

        Raises ValueError where a number is NaN or infinite.
        """

    @abstractmethod
    def decompress(self, encoded: Encoded) -> Tensor:
        """Decode to a fresh vector of shape (d,). Absurd contents raise `MalformedMessage`."""


@runtime_checkable
class Adding(Protocol):
    """A compressor that decodes onto a vector in fewer passes than decoding and adding take."""

    def add_to(self, base: Tensor, encoded: Encoded) -> Tensor:
        """`base`, shape (d,), plus what `encoded` decodes to, to the bit: a fresh vector like `base`.

        Absurd contents raise `MalformedMessage`.
        """


def add_to(compressor: Compressor, base: Tensor, encoded: Encoded) -> Tensor:
    """`base` plus what `encoded` decodes to, a fresh vector like `base`. Raises MalformedMessage."""
    if _adds(type(compressor)):
        found: Tensor = cast("Adding", compressor).add_to(base, encoded)
        return found
    return base + compressor.decompress(encoded).to(base.device, base.dtype)


@cache
def _adds(kind: type) -> bool:
    """Whether compressors of that type are `Adding`; asked once, for to look at a protocol costs more than a call."""
    return issubclass(kind, Adding)
