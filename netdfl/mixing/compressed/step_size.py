"""gamma, the step size of compressed gossip: chosen from the compressor's error, halved when models diverge.

Each node chooses its own gamma and sends it in its messages. A pair of neighbors mixes by the smaller of their two
gammas, so the mean is preserved.

The first gamma comes from a trial: omega = 1 - |x - C(x)|^2 / |x|^2 for x drawn from N(0, 1), of the model's size if
the compressor's bound depends on the size (a count of numbers, a norm of the whole vector). Nodes that start from
different models have to agree on vectors like x, and take gamma = 0.9 omega^2 + 0.1 omega. Nodes that start from one
model and train take gamma = omega under CHOCO, because most of each move in training is in few coordinates, which are
sent often. For numbers see docs/compression.md. The distance to the neighbors' references is measured after 4, 8, 16,
... rounds. Constant drift grows with the square of time, four times from one measurement to the next; more than eight
times is an instability: gamma is halved and the measurements begin anew.

The second factor, a, makes a compressor a contraction, so that a reference that follows its differences never runs
away. The reference follows by h <- h + C(x - h), and |x - h|^2 is multiplied by 1 - omega, omega as above. Where C adds
more energy than it keeps, this grows, and no step size of the mixing helps. h <- h + a C(x - h) shrinks it again, with
a = 1 / (1 + variance) for an unbiased C (Koloskova, Stich, Jaggi 2019, section 2.2). The same holds for error feedback,
with the rest of x + e in place of x - h.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isclose, log2, sqrt
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from netdfl.compression.base import Compressor, EncodedVector, add_to
from netdfl.core.types import NodeId
from netdfl.training.drawing import seeded

Gamma = float | Literal["auto"]

_GROWTH = 8.0
_FIRST_LOOK = 4
_ROUNDING = 1e-12
_SAMPLE = 4096
_ALIKE = 0.01
_LEAST_KEPT = 0.002


class StepSize(NamedTuple):
    """The step size gamma of compressed gossip, and the measurements by which it is halved.

    Attributes:
        gamma: the step size.
        age: the rounds since gamma last changed.
        distance: the squared distance measured last; -1 before the first measurement.
    """

    gamma: float
    age: int = 0
    distance: float = -1.0


class CompressionTrial(NamedTuple):
    """The measured quality of a compressor on one normal vector.

    `kept` is omega = 1 - |x - C(x)|^2 / |x|^2, negative where C adds more error than it keeps of x. `part` is the
    factor a for which a C(x) is nearest to x, a = <x, C(x)> / |C(x)|^2: below 1 where C is noisy, 1 for a projection.
    """

    kept: float
    part: float


def sample_size(compressor: Compressor, dim: int) -> int:
    """Return the length of the trial vector for vectors of `dim` numbers.

    It is at most 4096 if the compressor has the same error bound at that length.
    """
    few, all = compressor.variance(min(_SAMPLE, dim)), compressor.variance(dim)
    alike = isclose(few, all, rel_tol=_ALIKE) and isclose(1.0 - few, 1.0 - all, rel_tol=_ALIKE)
    return min(dim, _SAMPLE) if alike else dim


def trial(compressor: Compressor, dim: int) -> CompressionTrial:
    """Compress a fixed normal vector that represents vectors of `dim` numbers, and return the measured quality."""
    size = max(1, sample_size(compressor, dim))
    return _known(compressor, size) if isinstance(compressor, Hashable) else _trial(compressor, size)


def _trial(compressor: Compressor, size: int) -> CompressionTrial:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal(size, np.float64 if size <= _SAMPLE else np.float32))
    ours = type(compressor).__module__.startswith("netdfl.")
    given = x if ours else x.float()  # a user's own may be made for models alone, which are float32
    with seeded(0, x.device):  # a user's own may draw elsewhere, and all nodes must find the same
        said = compressor.decompress(compressor.compress(given, rng)).to(x.dtype)
    x = given.to(x.dtype)
    lost, energy = float((said - x).square().sum()), float(said.square().sum())
    along = float((said * x).sum())
    return CompressionTrial(1.0 - lost / float(x.square().sum()), along / energy if along > 0 else 1.0)


_known = lru_cache(maxsize=64)(_trial)


def first_step_size(gamma: Gamma, compressor: Compressor, dim: int, *, common_start: bool = False) -> StepSize:
    """Return the first step size: the given gamma or, for `auto`, one from a trial compression.

    It is larger where all nodes start from one model.
    """
    if gamma != "auto":
        return StepSize(gamma)
    omega = max(_LEAST_KEPT, trial(compressor, dim).kept)
    return StepSize(max(min(0.01, omega / 2), omega if common_start else 0.9 * omega**2 + 0.1 * omega))


def watch(step: StepSize, own: Tensor, others: Mapping[NodeId, Tensor], weights: Mapping[NodeId, float]) -> StepSize:
    """Halve gamma if the distance of the vector `own` to the neighbors' reference vectors has grown too much.

    The distance is measured 4, 8, 16, ... rounds after the last change of gamma.
    """
    step = step._replace(age=step.age + 1)
    if step.age < _FIRST_LOOK or step.age & (step.age - 1):
        return step
    distance = sum(weights.get(j, 0.0) * float((other - own).square().sum()) for j, other in sorted(others.items()))
    floor = _ROUNDING * float(own.square().sum())
    if 0.0 <= step.distance and distance > max(_GROWTH * step.distance, floor):
        return StepSize(step.gamma / 2, 0, distance)
    return step._replace(distance=distance)


def _part(compressor: Compressor, dim: int) -> float:
    """Return the factor a by which to scale the compressor: the power of two nearest to the best, at most 1."""
    return float(2.0 ** min(0, round(log2(trial(compressor, dim).part))))


_known_part = lru_cache(maxsize=64)(_part)


@dataclass(frozen=True, slots=True)
class ScaledCompressor(Compressor):
    """The compressor C scaled by a factor a <= 1, the power of two nearest to the best one on a normal vector.

    Sender and receiver find a by the same trial. Multiplying by a power of two needs no rounding, and machines that
    round the trial differently still find the same power.
    """

    inner: Compressor

    def part(self, dim: int) -> float:
        """Return the factor a by which the compressor is scaled for vectors of `dim` numbers, at most 1."""
        return _known_part(self.inner, dim) if isinstance(self.inner, Hashable) else _part(self.inner, dim)

    def variance(self, dim: int) -> float:
        """Return the bound ((1 - a) + a sqrt(v))^2, where v is the inner compressor's bound.

        It follows from |x - a C(x)| <= (1 - a)|x| + a|x - C(x)|.
        """
        part = self.part(dim)
        return float(((1.0 - part) + part * sqrt(self.inner.variance(dim))) ** 2)

    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
        """Return the inner compressor's code, unscaled, because the receiver knows the factor a."""
        return self.inner.compress(x, rng)

    def decompress(self, encoded: EncodedVector) -> Tensor:
        """Decode by the inner compressor, and multiply by the factor a."""
        said, part = self.inner.decompress(encoded), self.part(encoded.dim)
        return said if part == 1.0 else said * part

    def add_to(self, base: Tensor, encoded: EncodedVector) -> Tensor:
        """Return `base` plus the decoded, scaled vector."""
        if self.part(base.numel()) == 1.0:
            return add_to(self.inner, base, encoded)
        return base + self.decompress(encoded).to(base.device, base.dtype)
