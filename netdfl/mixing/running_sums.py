"""Push-sum that survives loss without acknowledgements: every edge carries a running sum.

A sender adds each share to the edge's counter and sends the counter; a receiver adds the growth of the counter since
the last one that it received. So the share of a lost message arrives with the next one:

    s_ij <- s_ij + P_ij x_j,   x_i+ = P_ii x_i + sum_j (s_ij - r_ij),   r_ij <- s_ij

and likewise for w. Invariant: sum_i w_i + sum_ij (s_ij - r_ij) = n, and the same for x. Counters grow without end and
their differences do not, so they are float64 for every model.
Source: Hadjicostis, Vaidya, Dominguez-Garcia 2016.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from netdfl.core.types import Inbox, NodeId, Outbox, Payload, View
from netdfl.mixing.base import MixResult, ShareMixing
from netdfl.mixing.payloads import mass, most_mass, pack, vector
from netdfl.training.base import Update

if TYPE_CHECKING:
    from torch import Tensor


class Counter(NamedTuple):
    """The running sum of the shares on one edge: of x in float64, shape (d,), and of w.

    `round` and `step` are the ones of the message that brought this sum.
    """

    x: Tensor
    weight: float
    round: int = -1
    step: int = 0


NO_COUNTERS: Mapping[NodeId, Counter] = MappingProxyType({})


class RunningSumsState(NamedTuple):
    """The state of a node: its push-sum weight w, and the running sums on its edges.

    Attributes:
        weight: the push-sum weight w.
        sent: the sum sent to each out-neighbor; out-neighbors with equal shares so far have one vector in common.
        heard: the newest sum received from each in-neighbor.
    """

    weight: float
    sent: Mapping[NodeId, Counter] = NO_COUNTERS
    heard: Mapping[NodeId, Counter] = NO_COUNTERS


@dataclass(frozen=True)
class RunningSums(ShareMixing):
    """Robust push-sum for a static graph: loss, duplicates and reordering lose no mass, only delay it."""

    def init(self, x: Tensor, view: View) -> RunningSumsState:
        """Return the state with weight 1 and no running sums."""
        return RunningSumsState(1.0)

    def outgoing(
        self, state: RunningSumsState, update: Update, step: int, view: View
    ) -> tuple[RunningSumsState, Outbox]:
        """Send every out-neighbor its running sum, increased by this round's share."""
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

    def mix(self, state: RunningSumsState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        """Add to the node's own share the growth of each running sum; an outdated sum adds nothing."""
        x, weight = update.x * view.self_weight, state.weight * view.self_weight
        heard = dict(state.heard)
        for message in inbox:
            exchanges = message.round * self.steps + message.step + 1
            weight_so_far = mass(message, "w", most_mass(view) * exchanges)
            counter = Counter(vector(message, x.double()).clone(), weight_so_far, message.round, message.step)
            before = heard.get(message.src)
            if before is not None and (counter.round, counter.step) <= (before.round, before.step):
                continue
            x.add_(counter.x if before is None else counter.x - before.x)
            weight += counter.weight - (0.0 if before is None else before.weight)
            heard[message.src] = counter
        return MixResult(state._replace(weight=weight, heard=heard), update._replace(x=x))


def _grown(before: Counter | None, x: Tensor, weight: float, share: float) -> Counter:
    given = x.double() * share
    if before is None:
        return Counter(given, weight * share)
    return Counter(before.x + given, before.weight + weight * share)
