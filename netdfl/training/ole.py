"""Ole, the start of OledFL's rounds: each begins beyond the mixed vector, away from the end of the last local round.

    y_0 = x + beta (x - z_prev)          z_prev: the node's vector before the last mixing; x^0 at first

With X = W Z_prev this is Y_0 = ((1 + beta) W - beta I) Z_prev: the mean over the nodes is the same, and the self weight
is over-relaxed. On a static symmetric W it is stable only for beta below (1 + l) / (1 - l), l the smallest eigenvalue
of W: 0.5 on a ring with weights 1/3, 1 on a full graph. Source: OledFL Alg. 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from netdfl.core.types import View
from netdfl.training.base import Update


class OleState(NamedTuple):
    """The node's vector z_prev at the end of its last local round, shape (d,)."""

    previous: Tensor


@dataclass(frozen=True)
class Ole:
    """The rule by which OledFL starts local rounds: at the mixed vector plus `beta` times the change by mixing."""

    beta: float

    def init(self, x: Tensor, view: View) -> OleState:
        """Return a state in which the initial vector `x` counts as the end of the last local round."""
        return OleState(x)

    def begin(self, state: OleState, x: Tensor, view: View) -> tuple[OleState, Tensor]:
        """Return the start x + beta (x - z_prev), where beta is OledFL's look-ahead factor.

        z_prev is the vector at the end of the last local round.
        """
        return state, torch.lerp(state.previous, x, 1.0 + self.beta)

    def trained(self, state: OleState, update: Update, view: View) -> OleState:
        """Store the vector at the end of this local round, for the start of the next one."""
        return OleState(update.x)
