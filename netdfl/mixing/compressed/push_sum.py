"""Push-sum over references: quantized push-sum for static graphs, edge-referenced push-sum for all.

Both split a node's weight w and a multiple of a reference h that the receiver knows; the sender gives
up exactly what the receiver gains, so the sums of x and of w never change, for any C:

    quantized (Taheri et al. 2020)   one reference x^ of the numerator x per node, sent to all
        x_i+ = (x_i - x^_i) + sum_j P'_ij x^_j,    w_i+ = sum_j P'_ij w_j
    edge                             one reference h_ij of z = x / w per used edge
        x_i+ = x_i + sum_j P'_ij w_j h_ij - sum_k P'_ki w_i h_ki,    w_i+ = sum_j P'_ij w_j

P' = I + gamma (P - I) is P made lazier: what damps x damps w too. Static copies are what the first
asks for. The second serves graphs that change every round, and costs a vector for every edge in use
at both of its ends.

Loss is as in plain push-sum: a lost message is lost mass, of x and of w. A message that arrives but
can't be decoded, because an earlier one was lost, waits with its mass for the full reference that it
makes its receiver ask for; its mass is neither node's meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from netdfl.core.types import Inbox, NodeId, Outbox, Payload, View
from netdfl.mixing.base import Mixed
from netdfl.mixing.compressed.references import Came, Differences, Heard, Reference, address, ask_others
from netdfl.training.base import Update


class QuantizedState(NamedTuple):
    """w, the node's own reference, and what it knows of the others'."""

    weight: float
    own: Reference
    heard: Heard


@dataclass(frozen=True, kw_only=True)
class QuantizedPushSum:
    """Push-sum with one reference per node, for static directed graphs. `gamma` damps x and w alike."""

    differences: Differences
    gamma: float = 1.0
    push = True

    def init(self, x: Tensor, view: View) -> QuantizedState:
        """Weight 1, references where all start."""
        heard = self.differences.first(x)
        return QuantizedState(1.0, Reference(heard.start), heard)

    def weight(self, state: QuantizedState) -> float:
        """w: gradients are taken at x / w."""
        return state.weight

    def figures(self, state: QuantizedState) -> Mapping[str, float]:
        """What lost references cost. See `Counting`."""
        return state.heard.tally.figures()

    def num_steps(self, round: int, view: View) -> int:
        """One exchange a round."""
        return 1

    def outgoing(self, state: QuantizedState, update: Update, step: int, view: View) -> tuple[QuantizedState, Outbox]:
        """x^ <- x^ + C(x - x^); a share of x^ and of w for each out-neighbor; equal shares are one payload."""
        own, code = self.differences.send(state.own, update.x, view, step)
        heard, outbox = state.heard, dict[NodeId, Payload]()
        for share in sorted(set(view.out_weights.values())):
            to = [j for j in view.out_neighbors if view.out_weights[j] == share]
            meta = {"share": self.gamma * share, "w": self.gamma * share * state.weight}
            heard, some = address(heard, state.own, code, meta, to)
            outbox |= some
        heard, asking = ask_others(heard, outbox)
        return QuantizedState(state.weight, own, heard), asking

    def mix(self, state: QuantizedState, update: Update, inbox: Inbox, step: int, view: View) -> Mixed:
        """Give up what was sent, gain what came, of this round or an earlier one."""
        heard, came = self.differences.receive(state.heard, inbox, view)
        x, weight = update.x.clone(), state.weight
        for j in view.out_neighbors:
            x.sub_(state.own.vector * (self.gamma * view.out_weights[j]))
            weight -= self.gamma * view.out_weights[j] * state.weight
        x, weight = _gain(x, weight, came)
        return Mixed(QuantizedState(weight, state.own, heard), update._replace(x=x))


class EdgeState(NamedTuple):
    """w, the references of z by receiver, and what is known of others' by sender."""

    weight: float
    sent: Mapping[NodeId, Reference]
    heard: Heard


@dataclass(frozen=True, kw_only=True)
class EdgePushSum:
    """Push-sum with a reference of z = x / w per used edge, for graphs of any kind."""

    differences: Differences
    gamma: float = 1.0
    push = True

    def init(self, x: Tensor, view: View) -> EdgeState:
        """Weight 1, no edge used yet."""
        return EdgeState(1.0, {}, self.differences.first(x))

    def weight(self, state: EdgeState) -> float:
        """w: gradients are taken at x / w."""
        return state.weight

    def figures(self, state: EdgeState) -> Mapping[str, float]:
        """What lost references cost. See `Counting`."""
        return state.heard.tally.figures()

    def num_steps(self, round: int, view: View) -> int:
        """One exchange a round."""
        return 1

    def outgoing(self, state: EdgeState, update: Update, step: int, view: View) -> tuple[EdgeState, Outbox]:
        """h <- h + C(z - h) on each edge, and the share of w that goes with h."""
        z = update.x / state.weight if state.weight else state.heard.start
        sent, heard, outbox = dict(state.sent), state.heard, dict[NodeId, Payload]()
        for j in view.out_neighbors:
            before = sent.get(j) or Reference(heard.start)
            sent[j], code = self.differences.send(before, z, view, step, j)
            share = self._share(state.weight, j, view)
            heard, one = address(heard, before, code, {"share": share, "w": share}, [j])
            outbox |= one
        heard, asking = ask_others(heard, outbox)
        return EdgeState(state.weight, sent, heard), asking

    def mix(self, state: EdgeState, update: Update, inbox: Inbox, step: int, view: View) -> Mixed:
        """Give up what was sent, gain what came, of this round or an earlier one."""
        heard, came = self.differences.receive(state.heard, inbox, view)
        x, weight = update.x.clone(), state.weight
        for j in view.out_neighbors:
            share = self._share(state.weight, j, view)
            x.sub_(state.sent[j].vector * share)
            weight -= share
        x, weight = _gain(x, weight, came)
        return Mixed(EdgeState(weight, state.sent, heard), update._replace(x=x))

    def _share(self, weight: float, j: NodeId, view: View) -> float:
        return self.gamma * view.out_weights[j] * weight


def _gain(x: Tensor, weight: float, came: Mapping[NodeId, Iterable[Came]]) -> tuple[Tensor, float]:
    """Add the shares that came, in the senders' order; each product is rounded as its sender rounded it."""
    for j in sorted(came):
        for vector, share in came[j]:
            x.add_(vector * share.x)
            weight += share.w
    return x, weight
