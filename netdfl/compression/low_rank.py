"""Low-rank compression: the vector as a near-square matrix, sent as a product of two thin matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netdfl.compression.arrays import Vector, as_vector, check_names, from_numpy, read_finite, refuse_non_finite
from netdfl.compression.base import Compressor, EncodedVector
from netdfl.core.errors import MalformedMessage


@dataclass(frozen=True, slots=True)
class LowRank(Compressor):
    """One power iteration from a random start (Vogels et al. 2019, PowerSGD, algorithm 1, without its memory).

    M is x in rows, padded with zeros to n = ceil(sqrt d) by m = ceil(d / n). P = orthonormalize(M Q) with Q Gaussian,
    of shape (m, r); C(x) = P (M^T P)^T, a projection of M: biased. The expected contraction is at least r / min(n, m):
    a direction drawn as M q favors large singular values, so it takes at least their mean share.

    nbytes: 4 r (n + m); 8 r (n + m) for float64.
    """

    rank: int

    def shape(self, dim: int) -> tuple[int, int, int]:
        """Return rows n, columns m and rank r for `dim` numbers."""
        rows = math.isqrt(max(dim, 1) - 1) + 1
        columns = -(-dim // rows)
        return rows, columns, min(self.rank, rows, columns)

    def variance(self, dim: int) -> float:
        """Return 1 - r / min(n, m), in expectation, for rank r and a matrix of n by m numbers."""
        rows, columns, rank = self.shape(dim)
        return 1.0 - rank / min(rows, columns) if dim else 0.0

    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
        """Encode `x` of shape (d,). Raises ValueError where a number is not finite."""
        vector = as_vector(x)
        refuse_non_finite(vector)
        rows, columns, rank = self.shape(len(vector))
        matrix = np.zeros((rows, columns), vector.dtype)
        matrix.ravel()[: len(vector)] = vector
        largest = np.abs(vector).max(initial=0.0)
        exponent = _far(largest)
        if exponent:  # powers of two are exact: the same bits as of ordinary numbers
            matrix, largest = np.ldexp(matrix, -exponent), np.ldexp(largest, -exponent)
        start = rng.standard_normal((rank, columns), vector.dtype) / (largest or 1)
        # einsum without BLAS: one thread, and the same bits on any machine's number of them.
        left = _orthonormal(np.einsum("ij,rj->ri", matrix, start)).astype(vector.dtype)
        right = np.einsum("ri,ij->rj", left, matrix)
        if exponent:
            right = _sized(left, right, exponent)
        return EncodedVector(len(vector), {"left": from_numpy(left.ravel()), "right": from_numpy(right.ravel())})

    def decompress(self, encoded: EncodedVector) -> Tensor:
        """Decode to shape (d,), in the dtype of the factors. Raises MalformedMessage."""
        dim = check_names(encoded, ("left", "right"))
        rows, columns, rank = self.shape(dim)
        left = read_finite(encoded, "left", rank * rows).reshape(rank, rows)
        right = read_finite(encoded, "right", rank * columns).reshape(rank, columns)
        if left.dtype != right.dtype:
            raise MalformedMessage(f"factors of {left.dtype} and {right.dtype}; expected one dtype")
        with np.errstate(over="ignore", invalid="ignore"):
            matrix = np.einsum("ri,rj->ij", left, right)
        vector = matrix.ravel()[:dim]
        if not np.isfinite(vector).all():
            raise MalformedMessage("factors whose product is not finite; expected finite numbers")
        return torch.from_numpy(vector)


def _far(largest: np.floating[Any]) -> int:
    """Return the binary exponent of `largest` if products of numbers of this magnitude may leave the dtype's range.

    Else 0.
    """
    exponent = int(np.frexp(largest)[1])
    return exponent if abs(exponent) > 0.75 * np.finfo(largest.dtype).maxexp else 0


def _sized(left: Vector, right: Vector, exponent: int) -> Vector:
    """Return the matrix `right` times 2^exponent. Raises ValueError if it or its product with `left` overflows."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        right = np.ldexp(right, exponent)
        fits = np.isfinite(np.einsum("ri,rj->ij", left, right)).all()
    if not fits:
        what = f"a product of low rank is beyond {right.dtype}"
        raise ValueError(f"{what}: lower the learning rate or clip the gradient")
    return right


def _orthonormal(vectors: Vector) -> Vector:
    """Orthonormalize rows in float64, repeated once for precision; linearly dependent rows become 0."""
    basis = vectors.astype(np.float64)
    for i, row in enumerate(basis):
        size = math.sqrt(np.einsum("j,j->", row, row))
        for _ in range(2):
            row -= np.einsum("i,ij->j", np.einsum("ij,j->i", basis[:i], row), basis[:i])
        left = math.sqrt(np.einsum("j,j->", row, row))
        row *= 1 / left if left > 1e-6 * size else 0
    return basis
