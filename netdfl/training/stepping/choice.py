"""Which optimizer makes local steps, as a scenario says it. Importing it does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from netdfl.core.units import Bound, PositiveFloat

Share = Annotated[float, Bound(ge=0, lt=1)]


@dataclass(frozen=True, kw_only=True)
class OptimizerChoice:
    """An optimizer of torch.optim in place of plain SGD; `lr` and `weight_decay` are the algorithm's own.

    `state`: what it remembers begins anew every round, or is kept by each node, unmixed.
    """

    name: Literal["sgd", "adam", "adamw", "nadam", "radam", "adamax", "adagrad", "adadelta", "rmsprop"] = "sgd"
    betas: tuple[Share, Share] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8
    state: Literal["reset", "kept"] = "reset"


PLAIN_SGD = OptimizerChoice()
"""No other optimizer."""
