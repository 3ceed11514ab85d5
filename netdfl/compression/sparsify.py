"""Compressors that send k of d coordinates, unchanged or compressed: the largest, or random ones drawn at both ends."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netdfl.compression import positions
from netdfl.compression.arrays import (
    DTYPES,
    Vector,
    as_vector,
    check_names,
    empty,
    from_numpy,
    is_finite,
    raise_non_finite,
    read_count,
    read_dim,
    read_finite,
    read_numpy,
    refuse_non_finite,
)
from netdfl.compression.base import Compressor, EncodedVector
from netdfl.compression.positions import Indices, above, largest
from netdfl.core.types import Array

_VALUES = "values."


@dataclass(frozen=True, slots=True)
class Sparsifier(Compressor):
    """A compressor that keeps `count` coordinates, or round(`fraction` d) if `count` is 0; at least one, at most d."""

    fraction: float
    count: int

    def num_kept(self, dim: int) -> int:
        """Return the number of kept coordinates k for dimension `dim`."""
        return min(dim, self.count or max(1, round(self.fraction * dim)))

    @abstractmethod
    def select(self, x: Vector, rng: np.random.Generator) -> tuple[Vector, dict[str, Array]]:
        """Return the kept numbers of `x`, and the arrays of their positions. Raises ValueError for NaN or infinity."""

    @abstractmethod
    def positions(self, encoded: EncodedVector, *names: str) -> Indices:
        """Return the increasing indices of the sent coordinates; `names` are the encoded vector's other arrays.

        Raises MalformedMessage for invalid contents.
        """

    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
        """Encode `x` of shape (d,). Raises ValueError where a number is not finite."""
        vector = as_vector(x)
        values, arrays = self.select(vector, rng)
        if self.unbiased:
            values = _times(values, 1.0 + self.variance(len(vector)))
        return EncodedVector(len(vector), {"values": from_numpy(values), **arrays}, {"count": len(values)})

    def decompress(self, encoded: EncodedVector) -> Tensor:
        """Decode to shape (d,), in the dtype of the values. Raises MalformedMessage."""
        indices = self.positions(encoded, "values")
        return scatter(read_finite(encoded, "values", len(indices)), indices, encoded.dim)


def _times(values: Vector, factor: float) -> Vector:
    """Multiply `values` by `factor`, in place. Raises ValueError if the result overflows."""
    with np.errstate(over="ignore"):
        values *= values.dtype.type(factor)
    if not is_finite(values):
        what = f"a number times d / k = {factor:.4g} is beyond {values.dtype}"
        raise ValueError(f"{what}: use unbiased: false, lower the learning rate or clip the gradient")
    return values


def scatter(values: Vector, indices: Indices, dim: int) -> Tensor:
    """Return a zero vector of shape (dim,) with `values` at `indices`."""
    result = empty(dim, DTYPES[values.dtype.name])
    result.numpy()[:] = 0
    result.numpy()[indices] = values
    return result


@dataclass(frozen=True, slots=True)
class TopK(Sparsifier):
    """Keep the k coordinates of largest magnitude: |x - C(x)|^2 <= (1 - k / d) |x|^2 (Stich et al. 2018, lemma A.1).

    Biased, deterministic; ties go to the lower index. `estimate` keeps the numbers above a threshold found by sampling,
    without the exact selection after it: from 0.8 k to 1.2 k coordinates (else the exact k), so contraction 0.8 k / d.

    nbytes: 4 k and the positions (`positions.nbytes`); 8 k for float64.
    """

    estimate: bool = False

    def variance(self, dim: int) -> float:
        """Return 1 - k / d if k of d numbers are kept, or 1 - 0.8 k / d with `estimate`."""
        kept = self._bounds(dim)[0] if self.estimate else self.num_kept(dim)
        return 1.0 - kept / dim if dim else 0.0

    def _bounds(self, dim: int) -> tuple[int, int]:
        kept = self.num_kept(dim)
        return -(-kept * 4 // 5), min(dim, kept * 6 // 5)

    def select(self, x: Vector, rng: np.random.Generator) -> tuple[Vector, dict[str, Array]]:
        """Select the numbers of largest magnitude. Raises ValueError for NaN or infinity."""
        count = self.num_kept(len(x))
        found = above(x, count, self._bounds(len(x)), rng) if self.estimate else None
        indices, numbers = found or largest(x, count)
        if not is_finite(numbers):
            raise_non_finite(x)
        return numbers, positions.encode(indices, len(x))

    def positions(self, encoded: EncodedVector, *names: str) -> Indices:
        """Read the positions from the encoded vector. Raises MalformedMessage."""
        dim = read_dim(encoded)
        low, high = self._bounds(dim) if self.estimate else (self.num_kept(dim),) * 2
        count = read_count(encoded, "count", low, high)
        check_names(encoded, (*names, *positions.names(count, dim)))
        return positions.decode(encoded, count, dim)


@dataclass(frozen=True, slots=True)
class RandomK(Sparsifier):
    """A compressor that keeps k random coordinates, which the receiver draws again from the sent seed.

    A contraction with k / d in expectation (Stich et al. 2018, lemma A.1). `rescaled` multiplies by d / k: unbiased,
    with variance d / k - 1. nbytes: 4 k + 8; 8 k + 8 for float64.
    """

    rescaled: bool = False

    @property
    def unbiased(self) -> bool:
        """Whether the kept numbers are multiplied by d / k."""
        return self.rescaled

    def variance(self, dim: int) -> float:
        """Return 1 - k / d if k of d numbers are kept, or d / k - 1 if they are rescaled."""
        kept = self.num_kept(dim)
        return 0.0 if not dim else dim / kept - 1.0 if self.rescaled else 1.0 - kept / dim

    def select(self, x: Vector, rng: np.random.Generator) -> tuple[Vector, dict[str, Array]]:
        """Return the numbers at k random positions, and the seed of the positions in place of the positions."""
        refuse_non_finite(x)
        seed = rng.integers(0, 2**63, 1, np.int64)
        numbers: Vector = x.take(random_subset(int(seed[0]), self.num_kept(len(x)), len(x)))
        return numbers, {"seed": from_numpy(seed)}

    def positions(self, encoded: EncodedVector, *names: str) -> Indices:
        """Draw the positions again from the seed in the received vector. Raises MalformedMessage."""
        dim = check_names(encoded, ("seed", *names))
        kept = self.num_kept(dim)
        read_count(encoded, "count", kept, kept)
        seed = int(read_numpy(encoded, "seed", ("int64",), 1)[0])
        return random_subset(seed & (2**63 - 1), kept, dim)


@dataclass(frozen=True, slots=True)
class Chain(Compressor):
    """The composition Q(S(x)): the sparsifier S selects coordinates, and the compressor Q encodes them.

    The errors of S and of Q are orthogonal, so variance max(v_Q, 1 - w + w v_Q): w the contraction of S, v_Q the
    variance of Q on k numbers (the larger of the values for S keeping a share w or all of |x|^2). Biased.

    nbytes: the bytes of the positions and of Q on k numbers. Raises ValueError where S rescales.
    """

    sparsifier: Sparsifier
    values: Compressor

    def __post_init__(self) -> None:
        if self.sparsifier.unbiased:
            raise ValueError("chain got a rescaled random_k, expected a sparsifier that keeps values as they are")

    def variance(self, dim: int) -> float:
        """Return max(v_Q, 1 - w + w v_Q): w is the sparsifier's contraction, v_Q the inner compressor's variance."""
        kept = self.sparsifier.contraction(dim)
        lost = self.values.variance(self.sparsifier.num_kept(dim))
        return max(lost, 1.0 - kept + kept * lost)

    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
        """Encode `x` of shape (d,). Raises ValueError where a number is not finite."""
        vector = as_vector(x)
        kept, arrays = self.sparsifier.select(vector, rng)
        inner = self.values.compress(torch.from_numpy(kept), rng)
        prefixed = {_VALUES + name: array for name, array in inner.arrays.items()}
        meta = {_VALUES + name: value for name, value in inner.meta.items()}
        return EncodedVector(len(vector), {**arrays, **prefixed}, {"count": len(kept), **meta})

    def decompress(self, encoded: EncodedVector) -> Tensor:
        """Decode to shape (d,). Raises MalformedMessage."""
        mine = [name for name in encoded.arrays if name.startswith(_VALUES)]
        indices = self.sparsifier.positions(encoded, *mine)
        inner = EncodedVector(
            len(indices),
            {name.removeprefix(_VALUES): encoded.arrays[name] for name in mine},
            {n.removeprefix(_VALUES): v for n, v in encoded.meta.items() if n.startswith(_VALUES)},
        )
        return scatter(self.values.decompress(inner).numpy(), indices, encoded.dim)


def random_subset(seed: int, count: int, dim: int) -> Indices:
    """Return `count` distinct, uniformly drawn indices below `dim`, in increasing order.

    Indices are drawn with repetition until `count` differ; for a `count` over half, the complement is drawn. The raw
    bits of PCG64 are used, because numpy keeps them the same forever, unlike its `choice`.
    """
    bits = np.random.PCG64(seed)
    wanted = min(count, dim - count)
    drawn = np.zeros(dim, np.bool_)
    missing = wanted
    while missing:
        raw = bits.random_raw(missing)
        drawn[((raw >> np.uint64(11)) * (dim * 2.0**-53)).astype(np.int64)] = True
        missing = wanted - int(np.count_nonzero(drawn))
    return np.flatnonzero(drawn if wanted == count else ~drawn)
