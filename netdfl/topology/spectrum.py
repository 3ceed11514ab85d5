"""What a mixing matrix conserves, and how fast it brings nodes together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from netdfl.topology.weights import Matrix, MixingMatrix

_TOLERANCE = 1e-9
_DENSE = 1024
_POWERS = 2000


@dataclass(frozen=True, slots=True)
class Stochasticity:
    """Whether rows and columns of a nonnegative matrix sum to 1, and whether it is symmetric."""

    rows: bool
    columns: bool
    symmetric: bool

    @property
    def kind(self) -> Literal["doubly", "row", "column", "none"]:
        """One word: doubly stochastic, row stochastic, column stochastic, or none of them."""
        if self.rows and self.columns:
            return "doubly"
        return "row" if self.rows else "column" if self.columns else "none"


def stochasticity(matrix: Matrix) -> Stochasticity:
    """Classify a square matrix; a negative entry makes it neither row nor column stochastic."""
    nonnegative = bool(matrix.min() >= -_TOLERANCE)
    return Stochasticity(
        rows=nonnegative and bool(np.allclose(matrix.sum(axis=1), 1, rtol=0, atol=_TOLERANCE)),
        columns=nonnegative and bool(np.allclose(matrix.sum(axis=0), 1, rtol=0, atol=_TOLERANCE)),
        symmetric=bool(np.allclose(matrix, matrix.T, rtol=0, atol=_TOLERANCE)),
    )


def psi(matrix: Matrix) -> float:
    """The 2-norm of M - 11^T/n: the largest factor by which one exchange keeps disagreement.

    It is max(|lambda_2|, |lambda_n|) where M is symmetric, and 1 means no contraction.
    """
    return float(np.linalg.norm(matrix - 1 / len(matrix), 2))


def spectral_gap(matrix: Matrix) -> float:
    """1 - |lambda_2|, the second largest modulus of an eigenvalue; 1 for a single node."""
    if len(matrix) == 1:
        return 1.0
    symmetric = np.array_equal(matrix, matrix.T)
    moduli = np.sort(np.abs(np.linalg.eigvalsh(matrix) if symmetric else np.linalg.eigvals(matrix)))
    return float(1 - moduli[-2])


def smallest_eigenvalue(mixing: MixingMatrix) -> float:
    """The smallest eigenvalue of a symmetric mixing matrix; of many nodes by powers of I - M, which come close."""
    if mixing.graph.num_nodes <= _DENSE:
        return float(np.linalg.eigvalsh(mixing.dense())[0])
    graph, x = mixing.graph, np.random.default_rng(0).standard_normal(mixing.graph.num_nodes)
    largest = 0.0
    for _ in range(_POWERS):
        x /= np.linalg.norm(x)
        mixed = mixing.on_self * x
        mixed += np.bincount(graph.dst, weights=mixing.on_edges * x[graph.src], minlength=len(x))
        largest, x = float(x @ (x - mixed)), x - mixed
    return 1 - largest
