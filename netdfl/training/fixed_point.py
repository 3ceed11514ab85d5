"""Local steps that do not move while gradients are taken: all of a round's gradients at one point.

    x <- y - lr sum_k g~(z; xi_k),   z = y / w

Source: AsyNG, as DFedSGPSM describes it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from netdfl.core.types import View
from netdfl.training.base import LocalData, Received, Update
from netdfl.training.sgd import LocalSgd, Memoryless, NoState


@dataclass(frozen=True)
class FixedPoint(Memoryless):
    """The directions of `sgd` (its SAM, clipping and decay included), all at the round's first z. No momentum."""

    sgd: LocalSgd

    def train(
        self, state: NoState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> tuple[NoState, Update]:
        """One step by the sum of the round's gradients."""
        z, total = y if weight == 1.0 else y / weight, torch.zeros_like(y)
        for gradient in data.steps(epochs=self.sgd.epochs, steps=self.sgd.steps):
            total.add_(self.sgd.descent(gradient, z))
        return state, Update(y, torch.add(y, total, alpha=-self.sgd.rate(view)))
