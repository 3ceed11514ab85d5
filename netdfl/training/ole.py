"""Ole: begin the local round past the mixed vector, away from where the last local round ended.

    y_0 = x + beta (x - z_prev)          z_prev: the node's vector before the last mixing; x^0 at first

With X = W Z_prev this is Y_0 = ((1 + beta) W - beta I) Z_prev: the mean over the nodes is the same, and
the self weight is over-relaxed. On a static symmetric W it is stable for beta below
(1 + l) / (1 - l) alone, l the smallest eigenvalue of W: 0.5 on a ring with weights 1/3, 1 on a full
graph. Source: OledFL Alg. 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from netdfl.core.types import View
from netdfl.training.base import Update


class OleState(NamedTuple):
    """Where the last local round ended, shape (d,)."""

    previous: Tensor


@dataclass(frozen=True)
class Ole:
    """The start of OledFL. See `Start`."""

    beta: float

    def init(self, x: Tensor, view: View) -> OleState:
        """Nothing to be past of in round 0."""
        return OleState(x)

    def begin(self, state: OleState, x: Tensor, view: View) -> tuple[OleState, Tensor]:
        """x + beta (x - z_prev)."""
        return state, torch.lerp(state.previous, x, 1.0 + self.beta)

    def trained(self, state: OleState, update: Update, view: View) -> OleState:
        """Remember where this local round ended."""
        return OleState(update.x)
