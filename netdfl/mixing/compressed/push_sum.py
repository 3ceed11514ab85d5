"""Push-sum over references: quantized push-sum for static graphs, edge-referenced push-sum for all.

Both split a node's weight w and a multiple of a reference h that the receiver knows; the sender gives
up exactly what the receiver gains, so the sums of x and of w never change, for any C:

    quantized (Taheri et al. 2020)   one reference x^ of the numerator x per node, sent to all
        x_i+ = (x_i - x^_i) + sum_j P'_ij x^_j,    w_i+ = sum_j P'_ij w_j
    edge                             one reference h_ij of z = x / w per used edge
        x_i+ = x_i + sum_j P'_ij w_j h_ij - sum_k P'_ki w_i h_ki,    w_i+ = sum_j P'_ij w_j

P' = I + gamma (P - I) is P made lazier: what damps x damps w too. Sparse compressors need that; `auto`
takes gamma from the compressor alone, as CHOCO does. Static copies are what the first asks for. The
second serves graphs that change every round, and costs a vector for every edge in use at both of its
ends.

Loss is as in plain push-sum: a lost message is lost mass, of x and of w; with acknowledged delivery it
is sent again, and what is refused is the sender's again. A message that arrives but can't be decoded,
because an earlier one was lost or is late, waits with its mass for that one, or for the full reference
that it makes its receiver ask for; its mass is neither node's meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from netdfl.core.types import Inbox, NodeId, Outbox, Payload, View
from netdfl.mixing.base import Mixed
from netdfl.mixing.compressed.references import (
    FULL,
    Came,
    Differences,
    Heard,
    Reference,
    address,
    ask_others,
    share_of,
)
from netdfl.mixing.compressed.step_size import Gamma, first_step_size
from netdfl.mixing.payloads import encoded_vector, natural, vector
from netdfl.training.base import Update


class QuantizedState(NamedTuple):
    """w, gamma, the node's own reference, and what it knows of the others'."""

    weight: float
    gamma: float
    own: Reference
    heard: Heard


@dataclass(frozen=True, kw_only=True)
class QuantizedPushSum:
    """Push-sum with one reference per node, for static directed graphs. `gamma` damps x and w alike."""

    differences: Differences
    gamma: Gamma = "auto"
    push = True

    def init(self, x: Tensor, view: View) -> QuantizedState:
        """Weight 1, references where all start."""
        heard = self.differences.first(x)
        return QuantizedState(1.0, _gamma(self, x), Reference(heard.start), heard)

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
            meta = {"share": state.gamma * share, "w": state.gamma * share * state.weight}
            heard, some = address(heard, state.own, code, meta, to)
            outbox |= some
        heard, asking = ask_others(heard, outbox)
        return state._replace(own=own, heard=heard), asking

    def mix(self, state: QuantizedState, update: Update, inbox: Inbox, step: int, view: View) -> Mixed:
        """Give up what was sent, gain what came, of this round or an earlier one."""
        heard, came = self.differences.receive(state.heard, inbox, view)
        x, weight = update.x.clone(), state.weight
        for j in view.out_neighbors:
            x.sub_(state.own.vector * (state.gamma * view.out_weights[j]))
            weight -= state.gamma * view.out_weights[j] * state.weight
        x, weight = _gain(x, weight, came, _refused(self.differences, inbox, lambda j: state.own))
        return Mixed(state._replace(weight=weight, heard=heard), update._replace(x=x))


class EdgeState(NamedTuple):
    """w, gamma, the references of z by receiver, and what is known of others' by sender."""

    weight: float
    gamma: float
    sent: Mapping[NodeId, Reference]
    heard: Heard


@dataclass(frozen=True, kw_only=True)
class EdgePushSum:
    """Push-sum with a reference of z = x / w per used edge, for graphs of any kind."""

    differences: Differences
    gamma: Gamma = "auto"
    push = True

    def init(self, x: Tensor, view: View) -> EdgeState:
        """Weight 1, no edge used yet."""
        return EdgeState(1.0, _gamma(self, x), {}, self.differences.first(x))

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
            share = _share(state, j, view)
            heard, one = address(heard, before, code, {"share": share, "w": share}, [j])
            outbox |= one
        heard, asking = ask_others(heard, outbox)
        return state._replace(sent=sent, heard=heard), asking

    def mix(self, state: EdgeState, update: Update, inbox: Inbox, step: int, view: View) -> Mixed:
        """Give up what was sent, gain what came, of this round or an earlier one."""
        heard, came = self.differences.receive(state.heard, inbox, view)
        x, weight = update.x.clone(), state.weight
        for j in view.out_neighbors:
            share = _share(state, j, view)
            x.sub_(state.sent[j].vector * share)
            weight -= share
        x, weight = _gain(x, weight, came, _refused(self.differences, inbox, state.sent.__getitem__))
        return Mixed(state._replace(weight=weight, heard=heard), update._replace(x=x))


def _gamma(mixing: QuantizedPushSum | EdgePushSum, x: Tensor) -> float:
    return first_step_size(mixing.gamma, mixing.differences.compressor, x.numel()).gamma


def _share(state: EdgeState, j: NodeId, view: View) -> float:
    return state.gamma * view.out_weights[j] * state.weight


def _refused(differences: Differences, inbox: Inbox, reference: Callable[[NodeId], Reference]) -> list[Came]:
    """What this node's own messages held that their receivers refused: it is this node's again.

    Exact where all since the first refused were refused too, else to within what the reference moved since.
    """
    returned = [m for m in inbox.returned if "version" in m.payload.meta]
    back: list[Came] = []
    at: dict[NodeId, Reference] = {}
    for message in sorted(returned, key=lambda m: -natural(m, "version")):
        now = at.get(message.dst) or reference(message.dst)
        if differences.lossless(now.vector.numel()):
            now = Reference(vector(message, now.vector, FULL))
        back.append(Came(now.vector, share_of(message)))
        if now.version == natural(message, "version"):
            earlier = now.vector - encoded_vector(message, differences.compressor, now.vector)
            at[message.dst] = Reference(earlier, now.version - 1)
    return back


def _gain(
    x: Tensor, weight: float, came: Mapping[NodeId, Iterable[Came]], back: Iterable[Came]
) -> tuple[Tensor, float]:
    """Add the shares that came, in the senders' order, and those that came back.

    Each product is rounded as its sender rounded it.
    """
    for h, share in (*(each for j in sorted(came) for each in came[j]), *back):
        x.add_(h * share.x)
        weight += share.w
    return x, weight
