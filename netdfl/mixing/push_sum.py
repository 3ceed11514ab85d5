"""Push-sum: shares of mass over directed links, de-biased by a weight that travels with them.

A node holds a numerator x and a weight w (1 at first). It splits both among itself and its
out-neighbors by its own column of P, and adds up what comes:

    x_i+ = sum_j P_ij x_j,   w_i+ = sum_j P_ij w_j,   z_i = x_i / w_i

The sums of x and of w over the nodes, and what is in flight, never change (Kempe, Dobra, Gehrke;
SGP: Assran et al.). So a share that comes late is mass, and is added whenever it comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from netdfl.compression.vector import weighted_sum
from netdfl.core.types import Inbox, Outbox, Payload, View
from netdfl.mixing.base import ByShares, Mixed
from netdfl.mixing.payloads import mass, share, vector
from netdfl.training.base import Update

if TYPE_CHECKING:
    from torch import Tensor


class PushSumState(NamedTuple):
    """The push-sum weight w."""

    weight: float


@dataclass(frozen=True)
class PushSum(ByShares):
    """Plain push-sum. Lost shares are lost mass: the ratio is then biased, and w shrinks."""

    def init(self, x: Tensor, view: View) -> PushSumState:
        """Weight 1."""
        return PushSumState(1.0)

    def outgoing(self, state: PushSumState, update: Update, step: int, view: View) -> tuple[PushSumState, Outbox]:
        """A share for each out-neighbor; equal shares are one payload."""
        payloads: dict[float, Payload] = {}
        for part in view.out_weights.values():
            if part not in payloads:
                payloads[part] = share(update.x, part, {"w": state.weight * part})
        return state, {j: payloads[view.out_weights[j]] for j in view.out_neighbors}

    def mix(self, state: PushSumState, update: Update, inbox: Inbox, step: int, view: View) -> Mixed:
        """Keep the own share, add every share that came, of this round or an earlier one, or that was refused."""
        came = (*inbox, *inbox.returned)
        shares = [vector(message, update.x) for message in came]
        x = weighted_sum(update.x, view.self_weight, shares, [1.0] * len(shares))
        weight = sum([mass(message, "w") for message in came], state.weight * view.self_weight)
        return Mixed(PushSumState(weight), update._replace(x=x))
