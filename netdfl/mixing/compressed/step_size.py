"""gamma, the step size of compressed gossip: chosen from what the compressor loses, halved when models part.

A pair of neighbors mixes by the smaller of their two gammas, which each sends along, so that the
mean stays what it is though nodes choose alone.

The first gamma comes from a trial: omega = 1 - |x - C(x)|^2 / |x|^2 for x drawn from N(0, 1). Nodes that start
apart agree on vectors like x, and take 0.9 omega^2 + 0.1 omega. Nodes that start from one model and train take
omega under CHOCO, because few coordinates hold most of what training moves, and those are sent often. For
numbers see docs/compression.md. The distance to the neighbors' references is looked at after 4, 8, 16, ...
rounds. Constant drift apart grows with the square of time, four times from one look to
the next; more than eight times is an instability: gamma is halved and the looks begin anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from netdfl.compression.base import Compressor
from netdfl.core.types import NodeId

Gamma = float | Literal["auto"]

_GROWTH = 8.0
_FIRST_LOOK = 4
_ROUNDING = 1e-12
_TRIAL = 4096


class StepSize(NamedTuple):
    """gamma, the rounds since it was last changed, and the distance at the last look; -1 before."""

    gamma: float
    age: int = 0
    distance: float = -1.0


def kept_energy(compressor: Compressor, dim: int) -> float:
    """omega = 1 - |x - C(x)|^2 / |x|^2 on one normal vector of `dim` numbers, at most 4096; may be negative."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal(max(1, min(dim, _TRIAL))))
    lost = compressor.decompress(compressor.compress(x, rng)) - x
    return 1.0 - float(lost.square().sum() / x.square().sum())


def first_step_size(gamma: Gamma, compressor: Compressor, dim: int, *, common_start: bool = False) -> StepSize:
    """gamma as given, or from a trial: larger where nodes start from one model."""
    if gamma != "auto":
        return StepSize(gamma)
    omega = min(1.0, max(0.0, kept_energy(compressor, dim)))
    return StepSize(max(0.01, omega if common_start else 0.9 * omega**2 + 0.1 * omega))


def watch(step: StepSize, own: Tensor, others: Mapping[NodeId, Tensor], weights: Mapping[NodeId, float]) -> StepSize:
    """Look at the distance to the neighbors' references, where a look is due; halve gamma where it has exploded."""
    step = step._replace(age=step.age + 1)
    if step.age < _FIRST_LOOK or step.age & (step.age - 1):
        return step
    distance = sum(weights.get(j, 0.0) * float((other - own).square().sum()) for j, other in sorted(others.items()))
    floor = _ROUNDING * float(own.square().sum())
    if 0.0 <= step.distance and distance > max(_GROWTH * step.distance, floor):
        return StepSize(step.gamma / 2, 0, distance)
    return step._replace(distance=distance)
