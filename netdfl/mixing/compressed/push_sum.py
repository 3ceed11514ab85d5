"""Compressed push-sum over references (vectors known at both ends): one per node on static graphs, or one per edge.

In both methods a node sends a part of its weight w, and a multiple of a reference h that the receiver knows. The sender
loses exactly as much as the receiver gains, so the sums of x and of w never change, for any C:

    quantized (Taheri et al. 2020)   one reference x^ of the numerator x per node, sent to all
        x_i+ = (x_i - x^_i) + sum_j P'_ij x^_j,    w_i+ = sum_j P'_ij w_j
    edge                             one reference h_ij of z = x / w per used edge
        x_i+ = x_i + sum_j P'_ij w_j h_ij - sum_k P'_ki w_i h_ki,    w_i+ = sum_j P'_ij w_j

P' = I + gamma (P - I) is a lazier P, which damps x and w alike. Sparse compressors need that; `auto` takes gamma from
only the compressor, as CHOCO does, and halves it where z moves away from the initial reference faster and faster. (Not
from the neighbors' references: neighbors differ from one measurement to the next, and their references may be fresh.)
The first method needs static copies. The second serves graphs that change every round, and costs a vector for every
used edge at both of its ends.

Loss has the same effect as in plain push-sum: a lost message is lost mass, of x and of w. With acknowledged delivery
the message is sent again, and mass that the receiver refused belongs to the sender again. A message that arrives but
can't be decoded, because an earlier one was lost or is late, waits with its mass for the earlier one, or for the full
reference that the receiver requests; until then its mass belongs to neither node. Late shares make x and w jump
together. This does not disturb the edges' references of z, but the quantized method's references of x have to catch up
every time, so under loss with deadlines its nodes agree only roughly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

from netdfl.core.types import Inbox, NodeId, Outbox, Payload, View
from netdfl.mixing.base import MixResult, ShareMixing, has_mass
from netdfl.mixing.compressed.copies import DecodedReference, Heard, PushShare, Reference
from netdfl.mixing.compressed.references import (
    FULL,
    Differences,
    address,
    ask_others,
    length,
    share_of,
)
from netdfl.mixing.compressed.step_size import Gamma, StepSize, first_step_size, watch
from netdfl.mixing.payloads import encoded_vector, natural, vector
from netdfl.training.base import Update


class QuantizedState(NamedTuple):
    """The state of quantized push-sum: push-sum weight w, step size gamma, own reference vector, copies of others'."""

    weight: float
    step: StepSize
    own: Reference
    heard: Heard


class EdgeState(NamedTuple):
    """The state of edge-referenced push-sum.

    Attributes:
        weight: the push-sum weight w.
        step: the step size gamma.
        sent: the reference of z = x / w on the edge to each receiver.
        heard: copies of the references on the edges from senders.
    """

    weight: float
    step: StepSize
    sent: Mapping[NodeId, Reference]
    heard: Heard


S = TypeVar("S", QuantizedState, EdgeState)


@dataclass(frozen=True, kw_only=True)
class ReferencedPushSum(ShareMixing, ABC, Generic[S]):
    """The base of compressed push-sum; a subclass defines each receiver's share, and the reference vector in it."""

    differences: Differences
    gamma: Gamma = "auto"

    @abstractmethod
    def reference(self, state: S, j: NodeId) -> Reference:
        """Return the reference vector that receiver `j` will have once all messages to it arrive."""

    @abstractmethod
    def share(self, state: S, j: NodeId, view: View) -> PushShare:
        """Return the push-sum share for `j` in a round: a factor of the reference vector, and a part of weight w."""

    def figures(self, state: S) -> Mapping[str, float]:
        """Return the step size gamma, and counts of differences not decoded at once and of references sent in full."""
        return {**state.heard.tally.figures(), "gamma": state.step.gamma}

    def mix(self, state: S, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        """Subtract the push-sum shares that were sent, and add the received ones, of this round or earlier ones."""
        heard, came = self.differences.receive(state.heard, inbox, view)
        x, weight = update.x.clone(), state.weight
        for j in view.out_neighbors:
            share = self.share(state, j, view)
            x.sub_(self.reference(state, j).vector * share.x)
            weight -= share.w
        step_size = self._watched(state, update.x, view)
        back = _refused(self.differences, inbox, view, lambda j: self.reference(state, j))
        x, weight = _gain(x, weight, came, back)
        return MixResult(state._replace(weight=weight, step=step_size, heard=heard), update._replace(x=x))

    def _first_step(self, x: Tensor) -> StepSize:
        return first_step_size(self.gamma, self.differences.compressor, x.numel())

    def _watched(self, state: S, x: Tensor, view: View) -> StepSize:
        if self.gamma != "auto" or not has_mass(state.weight):
            return state.step
        return watch(state.step, state.heard.start.vector, {view.node: x / state.weight}, {view.node: 1.0})


@dataclass(frozen=True, kw_only=True)
class QuantizedPushSum(ReferencedPushSum[QuantizedState]):
    """Push-sum with one reference vector per node, for static directed graphs.

    The step size `gamma` scales the shares of x and of w alike.
    """

    def init(self, x: Tensor, view: View) -> QuantizedState:
        """Return the state with push-sum weight 1, and reference vectors at the common start of all nodes."""
        heard = self.differences.first(x)
        return QuantizedState(1.0, self._first_step(x), heard.start, heard)

    def reference(self, state: QuantizedState, j: NodeId) -> Reference:
        """Return the node's one reference vector x^."""
        return state.own

    def share(self, state: QuantizedState, j: NodeId, view: View) -> PushShare:
        """Return the factor gamma P_ji, for both x^ and w, with the column-stochastic mixing matrix P."""
        part = state.step.gamma * view.out_weights[j]
        return PushShare(part, part * state.weight)

    def outgoing(self, state: QuantizedState, update: Update, step: int, view: View) -> tuple[QuantizedState, Outbox]:
        """Update the reference, x^ <- x^ + C(x - x^), and send each out-neighbor its share of x^ and w."""
        own, code = self.differences.send(state.own, update.x, view, step)
        shares = {j: self.share(state, j, view) for j in view.out_neighbors}
        heard, outbox = state.heard, dict[NodeId, Payload]()
        for share in sorted(set(shares.values())):
            to = [j for j in view.out_neighbors if shares[j] == share]
            heard, some = address(heard, state.own, code, {"share": share.x, "w": share.w}, to)
            outbox |= some
        heard, asking = ask_others(heard, outbox)
        return state._replace(own=own, heard=heard), asking


@dataclass(frozen=True, kw_only=True)
class EdgePushSum(ReferencedPushSum[EdgeState]):
    """Push-sum with a reference vector of z = x / w per used edge, for graphs of any kind.

    A reference that was not used for many rounds is far from z: what one pass of the compressor leaves of their
    difference may exceed the whole difference on the edge with the newest reference. Such an edge gets further passes.
    """

    def init(self, x: Tensor, view: View) -> EdgeState:
        """Return the state with push-sum weight 1, and no reference vectors yet."""
        return EdgeState(1.0, self._first_step(x), {}, self.differences.first(x))

    def reference(self, state: EdgeState, j: NodeId) -> Reference:
        """Return the reference vector h of the edge to `j`."""
        return state.sent[j]

    def share(self, state: EdgeState, j: NodeId, view: View) -> PushShare:
        """Return gamma P_ji w: the part of the weight w sent to `j`, and the factor of h in the part of x sent to `j`.

        So `j` gains gamma P_ji w h. The reference h approximates z = x / w, and both ends of the edge to `j` know it.
        """
        part = state.step.gamma * view.out_weights[j] * state.weight
        return PushShare(part, part)

    def outgoing(self, state: EdgeState, update: Update, step: int, view: View) -> tuple[EdgeState, Outbox]:
        """Update the reference of each edge, h <- h + C(z - h), and send the difference with the edge's share of w."""
        z = update.x / state.weight if has_mass(state.weight) else state.heard.start.vector
        sent, heard, outbox = dict(state.sent), state.heard, dict[NodeId, Payload]()
        before = {j: sent.get(j) or heard.start for j in view.out_neighbors}
        within = min((length(z - reference.vector) for reference in before.values()), default=0.0)
        for j in view.out_neighbors:
            sent[j], code = self.differences.send(before[j], z, view, step, j, within)
            share = self.share(state, j, view)
            heard, one = address(heard, before[j], code, {"share": share.x, "w": share.w}, [j])
            outbox |= one
        heard, asking = ask_others(heard, outbox)
        return state._replace(sent=sent, heard=heard), asking


def _refused(
    differences: Differences, inbox: Inbox, view: View, reference: Callable[[NodeId], Reference]
) -> list[DecodedReference]:
    """Return the push-sum shares in this node's own messages that receivers refused, to be added back.

    They are exact if all messages since the first refused one were refused, too; otherwise they differ by the moves of
    the reference since then.
    """
    returned = [m for m in inbox.returned if "version" in m.payload.meta]
    back: list[DecodedReference] = []
    at: dict[NodeId, Reference] = {}
    for message in sorted(returned, key=lambda m: -natural(m, "version")):
        now = at.get(message.dst) or reference(message.dst)
        if differences.lossless(now.vector.numel()):
            now = Reference(vector(message, now.vector, FULL))
        back.append(DecodedReference(now.vector, share_of(message, view)))
        if now.version == natural(message, "version"):
            earlier = now.vector - encoded_vector(message, differences.compressor, now.vector)
            at[message.dst] = Reference(earlier, now.version - 1)
    return back


def _gain(
    x: Tensor, weight: float, came: Mapping[NodeId, Iterable[DecodedReference]], back: Iterable[DecodedReference]
) -> tuple[Tensor, float]:
    """Add to x and the weight the received push-sum shares `came`, by sender, and then own shares that were refused.

    `back` are the refused ones. Each product is rounded as its sender rounded it.
    """
    for h, share in (*(each for j in sorted(came) for each in came[j]), *back):
        x.add_(h * share.x)
        weight += share.w
    return x, weight
