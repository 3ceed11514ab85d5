"""Push-sum whose shares travel while the node goes on: what has come is added, the rest is mass in flight.

    give   x_i, w_i <- P_ii x_i, P_ii w_i;  P_ji x_i, P_ji w_i leave for each out-neighbor j
    take   x_i, w_i <- x_i, w_i + every share that came

The sums of x and of w over the nodes and over what is in flight never change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from netdfl.core.types import Inbox, Outbox, View
from netdfl.mixing.payloads import mass, vector
from netdfl.mixing.push_sum import PushSum, PushSumState
from netdfl.training.base import Update

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Overlapped:
    """Push-sum in two halves.

    Shares leave before local training where `before_training`, else after it. `lag` is by how many
    rounds a share may come later than the round it was sent in; None: the node never waits.
    """

    before_training: bool
    lag: int | None
    inner: PushSum = field(default_factory=PushSum)
    push = True

    def init(self, x: Tensor, view: View) -> PushSumState:
        """Weight 1."""
        return self.inner.init(x, view)

    def weight(self, state: PushSumState) -> float:
        """w of what the node holds now: gradients are taken at x / w."""
        return state.weight

    def give(self, state: PushSumState, x: Tensor, view: View) -> tuple[PushSumState, Tensor, Outbox]:
        """What the node keeps, and its neighbors' shares."""
        _, outbox = self.inner.outgoing(state, Update(x, x), 0, view)
        return PushSumState(state.weight * view.self_weight), x * view.self_weight, outbox

    def take(self, state: PushSumState, x: Tensor, inbox: Inbox) -> tuple[PushSumState, Tensor]:
        """Add what came. Raises MalformedMessage."""
        x, weight = x.clone(), state.weight
        for message in (*inbox, *inbox.returned):
            share, w = vector(message, x), mass(message, "w")
            x.add_(share)
            weight += w
        return PushSumState(weight), x
