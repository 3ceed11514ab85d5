"""The size of local steps: learning-rate schedules, and the choice of optimizer. Does not import torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from netdfl.core.units import Bound, PositiveFloat, PositiveInt


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A learning-rate schedule: the factor on `lr` in each round, in addition to `lr_decay`.

    It rises in equal steps over the first `warmup` rounds; then it is 1, or falls by `gamma` after `every` rounds
    (`step`), or along half a cosine to `floor` at the end of `rounds` (`cosine`; by default the scenario's).
    """

    kind: Literal["constant", "step", "cosine"] = "constant"
    warmup: Annotated[int, Bound(ge=0, le=1_000_000)] = 0
    every: PositiveInt = 30
    gamma: Annotated[float, Bound(gt=0, le=1)] = 0.1
    floor: Annotated[float, Bound(ge=0, le=1)] = 0.0
    rounds: PositiveInt | None = None

    def factor(self, round: int) -> float:
        """Return the factor on `lr` in `round`."""
        if round < self.warmup:
            return (round + 1) / self.warmup
        after = round - self.warmup
        if self.kind == "step":
            return float(self.gamma ** (after // self.every))
        if self.kind == "cosine" and self.rounds is not None:
            share = min(1.0, after / max(1, self.rounds - self.warmup))
            return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * share))
        return 1.0


CONSTANT = Schedule()
"""A constant rate."""


Share = Annotated[float, Bound(ge=0, lt=1)]


@dataclass(frozen=True, kw_only=True)
class OptimizerChoice:
    """A torch optimizer in place of plain SGD; `lr` and `weight_decay` come from the algorithm's parameters.

    `state` decides whether the optimizer's state begins anew every round, or is kept by each node, unmixed.
    """

    name: Literal["sgd", "adam", "adamw", "nadam", "radam", "adamax", "adagrad", "adadelta", "rmsprop"] = "sgd"
    betas: tuple[Share, Share] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8
    state: Literal["reset", "kept"] = "reset"


PLAIN_SGD = OptimizerChoice()
"""Plain SGD, without another optimizer."""
