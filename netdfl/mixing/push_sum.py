"""Push-sum: shares of mass over directed links, de-biased by a weight that travels with them.

A node holds a numerator x and a weight w (1 at first). It splits both among itself and its out-neighbors by its own
column of P, and adds up the shares that arrive:

    x_i+ = sum_j P_ij x_j,   w_i+ = sum_j P_ij w_j,   z_i = x_i / w_i

The sums of x and of w over the nodes and the shares in flight never change (Kempe, Dobra, Gehrke; SGP: Assran et al.).
So a late share still belongs to these sums, and is added whenever it arrives.

Where nodes compute while shares travel, a round has two halves, and shares that have not arrived are mass in flight:

    give   x_i, w_i <- P_ii x_i, P_ii w_i;  P_ji x_i, P_ji w_i leave for each out-neighbor j
    take   x_i, w_i <- x_i, w_i + every share that arrived
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from netdfl.compression.vector import weighted_sum
from netdfl.core.types import Inbox, Outbox, Payload, View
from netdfl.mixing.base import MixResult, ShareMixing
from netdfl.mixing.payloads import mass, most_mass, share, vector
from netdfl.training.base import Update

if TYPE_CHECKING:
    from torch import Tensor


class PushSumState(NamedTuple):
    """The state: the push-sum weight w."""

    weight: float


@dataclass(frozen=True)
class PushSum(ShareMixing):
    """Plain push-sum. A lost share is lost mass, which biases the ratio x / w and shrinks w."""

    @property
    def one_share(self) -> bool:
        """Whether neighbors with equal weights get the same message.

        False for a subclass with an `outgoing` of its own.
        """
        return type(self).outgoing.__module__ == __name__

    def init(self, x: Tensor, view: View) -> PushSumState:
        """Return the state with weight 1."""
        return PushSumState(1.0)

    def outgoing(self, state: PushSumState, update: Update, step: int, view: View) -> tuple[PushSumState, Outbox]:
        """Send each out-neighbor its share of x and w; equal shares are one payload."""
        return state, _shares(state, update.x, view)

    def mix(self, state: PushSumState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        """Add to the node's own share of x and w the received shares, early or late, and its refused shares."""
        came = (*inbox, *inbox.returned)
        shares = [vector(message, update.x) for message in came]
        x = weighted_sum(update.x, view.self_weight, shares, [1.0] * len(shares))
        most = most_mass(view)
        weight = sum([mass(message, "w", most) for message in came], state.weight * view.self_weight)
        return MixResult(PushSumState(weight), update._replace(x=x))


def _shares(state: PushSumState, x: Tensor, view: View) -> Outbox:
    payloads: dict[float, Payload] = {}
    for part in view.out_weights.values():
        if part not in payloads:
            payloads[part] = share(x, part, {"w": state.weight * part})
    return {j: payloads[view.out_weights[j]] for j in view.out_neighbors}


@dataclass(frozen=True, kw_only=True)
class OverlappedPushSum(PushSum):
    """Push-sum in two halves, sending shares (give) and adding received ones (take), between which nodes compute.

    Shares leave before local training with `before_training`, else after it. `lag` is the most rounds by which a share
    may be late; None: the node never waits.
    """

    before_training: bool
    lag: int | None

    def give(self, state: PushSumState, x: Tensor, view: View) -> tuple[PushSumState, Tensor, Outbox]:
        """Send the neighbors' shares of x and w: return the remaining state and vector, and the messages."""
        outbox = _shares(state, x, view)
        return PushSumState(state.weight * view.self_weight), x * view.self_weight, outbox

    def take(self, state: PushSumState, x: Tensor, inbox: Inbox, view: View) -> tuple[PushSumState, Tensor]:
        """Add the received shares of x and w, and own shares that receivers refused. Raises MalformedMessage."""
        x, weight = x.clone(), state.weight
        for message in (*inbox, *inbox.returned):
            share, w = vector(message, x), mass(message, "w", most_mass(view))
            x.add_(share)
            weight += w
        return PushSumState(weight), x
