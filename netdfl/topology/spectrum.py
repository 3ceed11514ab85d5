"""Spectral quantities of a mixing matrix: which sums it conserves, and how fast nodes reach consensus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netdfl.topology.weights import Matrix, MixingMatrix

_TOLERANCE = 1e-9
_DENSE = 512
_KRYLOV = 200

Spectrum: TypeAlias = NDArray[np.complex128]


@dataclass(frozen=True, slots=True)
class Stochasticity:
    """The properties of a nonnegative matrix: whether rows and columns sum to 1, and whether it is symmetric."""

    rows: bool
    columns: bool
    symmetric: bool

    @property
    def kind(self) -> Literal["doubly", "row", "column", "none"]:
        """The kind of the matrix: doubly stochastic, row stochastic, column stochastic, or none."""
        if self.rows and self.columns:
            return "doubly"
        return "row" if self.rows else "column" if self.columns else "none"


def stochasticity(matrix: Matrix) -> Stochasticity:
    """Classify a square matrix by which sums are 1; a negative entry makes it neither row nor column stochastic."""
    nonnegative = bool(matrix.min() >= -_TOLERANCE)
    return Stochasticity(
        rows=nonnegative and bool(np.allclose(matrix.sum(axis=1), 1, rtol=0, atol=_TOLERANCE)),
        columns=nonnegative and bool(np.allclose(matrix.sum(axis=0), 1, rtol=0, atol=_TOLERANCE)),
        symmetric=bool(np.allclose(matrix, matrix.T, rtol=0, atol=_TOLERANCE)),
    )


def psi(matrix: Matrix) -> float:
    """Return the 2-norm of M - 11^T/n: the most by which one exchange multiplies the nodes' deviation from their mean.

    It is max(|lambda_2|, |lambda_n|) where M is symmetric, and 1 means no contraction.
    """
    return float(np.linalg.norm(matrix - 1 / len(matrix), 2))


def spectral_gap(matrix: Matrix) -> float:
    """Return 1 - |lambda_2|, with lambda_2 the eigenvalue of second largest modulus; 1 for a single node."""
    if len(matrix) == 1:
        return 1.0
    return float(1 - np.sort(np.abs(_eigenvalues(matrix)))[-2])


def eigenvalues(mixing: MixingMatrix) -> Spectrum:
    """Return the eigenvalues of a mixing matrix, shape (n,); for many nodes only close estimates of the outermost."""
    if mixing.graph.num_nodes > _DENSE:
        return np.asarray(np.linalg.eigvals(_projected(mixing)), np.complex128)
    return np.asarray(_eigenvalues(mixing.dense()), np.complex128)


def _eigenvalues(matrix: Matrix) -> NDArray[np.inexact]:
    symmetric = np.array_equal(matrix, matrix.T)
    return np.linalg.eigvalsh(matrix) if symmetric else np.linalg.eigvals(matrix)


def _projected(mixing: MixingMatrix) -> Matrix:
    """Return the mixing matrix projected on a Krylov space by Arnoldi's method, shape (k, k), to estimate eigenvalues.

    k is at most `_KRYLOV`.
    """
    graph, n = mixing.graph, mixing.graph.num_nodes
    basis, small = np.zeros((_KRYLOV + 1, n)), np.zeros((_KRYLOV + 1, _KRYLOV))
    x = np.random.default_rng(0).standard_normal(n)
    basis[0] = x / np.linalg.norm(x)
    for k in range(_KRYLOV):
        x = mixing.on_self * basis[k]
        x += np.bincount(graph.dst, weights=mixing.on_edges * basis[k][graph.src], minlength=n)
        for _ in range(2):  # once leaves rounding errors that grow
            along = basis[: k + 1] @ x
            small[: k + 1, k] += along
            x -= along @ basis[: k + 1]
        small[k + 1, k] = norm = float(np.linalg.norm(x))
        if norm < _TOLERANCE:
            return small[: k + 1, : k + 1]
        basis[k + 1] = x / norm
    return small[:_KRYLOV]
