"""Eigenvalues by Lanczos and the trace by Hutchinson, of a symmetric matrix given only by its products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]
CLOSE = 1e-3
"""The relative error of the largest eigenvalues at which Lanczos stops."""
_GONE = 1e-10


class Spectrum(NamedTuple):
    """The eigenvalues that Lanczos found.

    Attributes:
        largest: the largest ones, in falling order.
        errors: a bound on the error of each of these.
        smallest: the smallest one found.
        steps: the number of products with the matrix.
        basis: the Lanczos vectors as columns, shape (d, steps).
        covered: the trace of the matrix over the span of these vectors.
    """

    largest: list[float]
    errors: list[float]
    smallest: float
    steps: int
    basis: Tensor
    covered: float


class HessianTrace(NamedTuple):
    """The trace of the Hessian, its standard error, and the number of random vectors."""

    value: float
    error: float
    probes: int


def lanczos(product: Product, dim: int, *, count: int, steps: int, generator: torch.Generator) -> Spectrum:
    """Return the `count` largest eigenvalues of a symmetric matrix, after at most `steps` products with it.

    Each new vector is made orthogonal to all before, twice. The error of an eigenvalue is at most the last coupling
    times the last entry of its vector (Paige); equal eigenvalues are found once.
    """
    steps, count = min(steps, dim), min(count, dim)
    basis = torch.zeros(dim, steps, dtype=torch.float64)
    basis[:, 0] = _unit(torch.randn(dim, dtype=torch.float64, generator=generator))
    diagonal: list[float] = []
    coupling: list[float] = []
    for done in range(1, steps + 1):
        last, known = basis[:, done - 1], basis[:, :done]
        ahead = product(last)
        diagonal.append(float(last @ ahead))
        for _ in range(2):
            ahead = ahead - known @ (known.T @ ahead)
        length = float(ahead.norm())
        values, vectors = torch.linalg.eigh(_tridiagonal(diagonal, coupling))
        errors = (length * vectors[-1].abs()).tolist()
        scale = float(values.abs().max())
        over = done == steps or length <= _GONE * max(scale, 1e-300)
        enough = len(values) >= count and all(
            error <= CLOSE * abs(float(value)) for value, error in zip(values[-count:], errors[-count:], strict=True)
        )
        if over or enough:
            largest = values.flip(0)[:count].tolist()
            return Spectrum(largest, errors[::-1][:count], float(values[0]), done, known, math.fsum(diagonal))
        coupling.append(length)
        basis[:, done] = ahead / length
    raise AssertionError("unreachable: the last step returns")


def hutchinson(product: Product, known: Spectrum, *, probes: int, generator: torch.Generator) -> HessianTrace:
    """Return the matrix's trace: exact on the span of the Lanczos vectors, estimated by random signs on its complement.

    `known` has these vectors, `product` multiplies by the matrix. The trace over the orthogonal complement lacks the
    largest eigenvalues, so a few random vectors estimate it well (Hutch++).
    """
    basis, dim = known.basis, len(known.basis)
    if known.steps >= dim:
        return HessianTrace(known.covered, 0.0, 0)
    found = []
    for _ in range(probes):
        signs = torch.randint(0, 2, (dim,), generator=generator).double() * 2 - 1
        rest = signs - basis @ (basis.T @ signs)
        found.append(float(rest @ product(rest)))
    mean = math.fsum(found) / probes
    variance = math.fsum((each - mean) ** 2 for each in found) / (probes - 1) if probes > 1 else math.nan
    return HessianTrace(known.covered + mean, math.sqrt(variance / probes), probes)


def _tridiagonal(diagonal: list[float], coupling: list[float]) -> Tensor:
    matrix = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if coupling:
        beside = torch.tensor(coupling, dtype=torch.float64)
        matrix += torch.diag(beside, 1) + torch.diag(beside, -1)
    return matrix


def _unit(vector: Tensor) -> Tensor:
    unit: Tensor = vector / vector.norm()
    return unit
