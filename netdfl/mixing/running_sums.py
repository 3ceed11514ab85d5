"""Push-sum that survives loss without a single acknowledgement: every edge carries a running sum.

A sender adds each share to the edge's counter and sends the counter; a receiver adds by how much the
counter has grown since it last heard it. What a lost message held comes with the next one:

    s_ij <- s_ij + P_ij x_j,   x_i+ = P_ii x_i + sum_j (s_ij - r_ij),   r_ij <- s_ij

and likewise for w. Invariant: sum_i w_i + sum_ij (s_ij - r_ij) = n, and the same for x. Counters grow without
end and their differences do not, so they are float64 whatever the model is.
Source: Hadjicostis, Vaidya, Dominguez-Garcia 2016.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from netdfl.core.types import Inbox, NodeId, Outbox, Payload, View
from netdfl.mixing.base import ByShares, Mixed
from netdfl.mixing.payloads import mass, pack, vector
from netdfl.training.base import Update

if TYPE_CHECKING:
    from torch import Tensor


class Counter(NamedTuple):
    """A running sum of shares: of x in float64, shape (d,), and of w; as of the message (round, step)."""

    x: Tensor
    weight: float
    round: int = -1
    step: int = 0


NO_COUNTERS: Mapping[NodeId, Counter] = MappingProxyType({})


class RunningSumsState(NamedTuple):
    """The push-sum weight w, what was sent to each out-neighbor, and heard of each in-neighbor, from the start on.

    Out-neighbors that were always given the same share one vector.
    """

    weight: float
    sent: Mapping[NodeId, Counter] = NO_COUNTERS
    heard: Mapping[NodeId, Counter] = NO_COUNTERS


@dataclass(frozen=True)
class RunningSums(ByShares):
    """Robust push-sum for a static graph: loss, duplicates and reordering lose no mass, only delay it."""

    def init(self, x: Tensor, view: View) -> RunningSumsState:
        """Weight 1, nothing sent or heard."""
        return RunningSumsState(1.0)

    def outgoing(
        self, state: RunningSumsState, update: Update, step: int, view: View
    ) -> tuple[RunningSumsState, Outbox]:
        """Every out-neighbor's counter with this round's share in it; equal counters are one payload."""
        made: dict[tuple[int | None, float], tuple[Counter, Payload]] = {}
        sent, outbox = dict(state.sent), {}
        for j in view.out_neighbors:
            before, share = state.sent.get(j), view.out_weights[j]
            key = (None if before is None else id(before.x), share)
            if key not in made:
                counter = _grown(before, update.x, state.weight, share)
                made[key] = counter, pack(counter.x, meta={"w": counter.weight})
            sent[j], outbox[j] = made[key]
        return state._replace(sent=sent), outbox

    def mix(self, state: RunningSumsState, update: Update, inbox: Inbox, step: int, view: View) -> Mixed:
        """Keep the own share; add by how much each counter has grown. What is older than what is known adds nothing."""
        x, weight = update.x * view.self_weight, state.weight * view.self_weight
        heard = dict(state.heard)
        for message in inbox:
            counter = Counter(vector(message, x.double()).clone(), mass(message, "w"), message.round, message.step)
            before = heard.get(message.src)
            if before is not None and (counter.round, counter.step) <= (before.round, before.step):
                continue
            x.add_(counter.x if before is None else counter.x - before.x)
            weight += counter.weight - (0.0 if before is None else before.weight)
            heard[message.src] = counter
        return Mixed(state._replace(weight=weight, heard=heard), update._replace(x=x))


def _grown(before: Counter | None, x: Tensor, weight: float, share: float) -> Counter:
    given = x.double() * share
    if before is None:
        return Counter(given, weight * share)
    return Counter(before.x + given, before.weight + weight * share)
