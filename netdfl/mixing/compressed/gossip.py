"""Compressed gossip with step size gamma, W' = I + gamma (W - I): CHOCO on reference vectors, DeepSqueeze on models.

CHOCO: X+ = (X - X^) + W' X^, for static undirected graphs.

Every node keeps a reference x^ of its own vector and copies of its neighbors', and sends C(x - x^). In this form it is
plain gossip on the references, with W' in place of W, plus the node's own residual; with C = I and gamma = 1 it is
D-PSGD bit for bit. The mean never changes for any C (Koloskova, Stich, Jaggi 2019; the local step is taken first, as in
their CHOCO-SGD). With `steps` Q it is DeLi-CoCo.

DeepSqueeze: gossip over compressed models with error feedback, X+ = (X - C) + W' C.

    m = x + e,  c = C(m),  e+ = m - c        and c goes to every neighbor

Nodes keep nothing of their neighbors, so the graph may change every round, and a lost message needs no repair. But a
lost message shifts the mean for good: the sender has subtracted c and its neighbor has not added it. Such shifts add up
as long as messages are lost, because the c of nodes that agree still differ by what C leaves out; CHOCO's differences
vanish where nodes agree, and with them the effect of loss. The mean never changes for any C without loss (Tang et al.
2019). C compresses the model itself, so without a falling step size the nodes agree only up to the compressor's error
on the model; CHOCO has no such floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from netdfl.compression.arrays import empty
from netdfl.compression.base import Compressor
from netdfl.compression.scratch import difference, stretches
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, NodeId, Outbox, Payload, View
from netdfl.mixing.base import MixResult, RowMixing
from netdfl.mixing.compressed.copies import DecodedReference, Heard, Reference
from netdfl.mixing.compressed.references import Differences, address, ask_others, compress
from netdfl.mixing.compressed.step_size import Gamma, StepSize, first_step_size, watch
from netdfl.mixing.gossip import row
from netdfl.mixing.payloads import encoded_vector, step_size, to_all, unpack_encoded
from netdfl.training.base import Update


class ChocoState(NamedTuple):
    """The node's own reference vector x^, its copies of its neighbors' references, and the step size gamma."""

    own: Reference
    heard: Heard
    step: StepSize


@dataclass(frozen=True, kw_only=True)
class Choco(RowMixing):
    """CHOCO-Gossip after the local round, as in CHOCO-SGD.

    Where the copy of a neighbor's reference is not up to date, `on_missing` decides. With `self` the neighbor's weight
    goes to the node itself, and the mean is not preserved; with `last` the old copy is used.
    """

    differences: Differences
    gamma: Gamma = "auto"
    on_missing: Literal["self", "last"] = "self"

    def init(self, x: Tensor, view: View) -> ChocoState:
        """Return reference vectors at the common start, and the step size gamma from a trial compression."""
        heard = self.differences.first(x)
        common_start, compressor = self.differences.common_start, self.differences.compressor
        step = first_step_size(self.gamma, compressor, x.numel(), common_start=common_start)
        return ChocoState(heard.start, heard, step)

    def figures(self, state: ChocoState) -> Mapping[str, float]:
        """Return the step size gamma, and counts of differences not decoded at once and of references sent in full."""
        return {**state.heard.tally.figures(), "gamma": state.step.gamma}

    def outgoing(self, state: ChocoState, update: Update, step: int, view: View) -> tuple[ChocoState, Outbox]:
        """Update the reference, x^ <- x^ + C(x - x^), and send the same compressed difference to all neighbors."""
        own, code = self.differences.send(state.own, update.x, view, step)
        heard, outbox = address(state.heard, state.own, code, {"gamma": state.step.gamma}, view.out_neighbors)
        heard, outbox = ask_others(heard, outbox)
        return state._replace(own=own, heard=heard), outbox

    def mix(self, state: ChocoState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        """Compute x+ = (x - x^) + (1 - gamma) x^ + gamma sum_j W_ij x^_j, with references x^ and mixing matrix W."""
        heard, came = self.differences.receive(state.heard, inbox, view)
        others, gammas = self._current(state, heard, came, inbox)
        mixed = lazily(update.x, state.own.vector, others, gammas, view)
        step_size = watch(state.step, state.own.vector, others, view.in_weights) if self.gamma == "auto" else state.step
        return MixResult(ChocoState(state.own, heard, step_size), update._replace(x=mixed))

    def _current(
        self, state: ChocoState, heard: Heard, came: Mapping[NodeId, tuple[DecodedReference, ...]], inbox: Inbox
    ) -> tuple[dict[NodeId, Tensor], dict[NodeId, float]]:
        others = {j: heard.copies[j].vector for j, decoded in came.items() if decoded}
        if self.on_missing == "last":
            others = {j: copy.vector for j, copy in heard.copies.items() if copy.version > 0}
        sent = {message.src: message for message in inbox if "version" in message.payload.meta}
        gamma = state.step.gamma
        return others, {j: min(gamma, step_size(sent[j], "gamma")) if j in sent else gamma for j in others}


class SqueezeState(NamedTuple):
    """The state: e, the error not yet sent; c, the vector sent in this step; and the step size gamma."""

    error: Tensor
    said: Tensor
    step: StepSize


@dataclass(frozen=True, kw_only=True)
class DeepSqueeze(RowMixing):
    """DeepSqueeze: gossip on the decoded vectors of all nodes, with error feedback.

    The weight of a neighbor without a message goes to the node itself.
    """

    compressor: Compressor
    streams: Streams = field(default_factory=lambda: Streams(0))
    gamma: Gamma = "auto"

    @property
    def same_to_all(self) -> bool:
        """Whether a node sends the same message to all neighbors.

        False for a subclass with an `outgoing` of its own.
        """
        return type(self).outgoing.__module__ == __name__

    def init(self, x: Tensor, view: View) -> SqueezeState:
        """Return a state without compression error, with the step size gamma from a trial compression."""
        nothing = x.new_zeros(x.shape)
        return SqueezeState(nothing, nothing, first_step_size(self.gamma, self.compressor, x.numel()))

    def outgoing(self, state: SqueezeState, update: Update, step: int, view: View) -> tuple[SqueezeState, Outbox]:
        """Compress the vector with its stored error, c = C(x + e), and send c to all neighbors."""
        meant = update.x + state.error
        code = compress(self.compressor, meant, self.streams, view, step)
        said = unpack_encoded(code, self.compressor, meant)
        payload = Payload(code.arrays, {**code.meta, "gamma": state.step.gamma})
        return state._replace(error=meant - said, said=said), to_all(view, payload)

    def mix(self, state: SqueezeState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        """Compute x+ = x + gamma (sum_j W_ij c_j - c_i) from the compressed vectors c, with the mixing matrix W."""
        came = {m.src: (encoded_vector(m, self.compressor, update.x), step_size(m, "gamma")) for m in inbox}
        others = {j: said for j, (said, _) in came.items()}
        gammas = {j: min(state.step.gamma, gamma) for j, (_, gamma) in came.items()}
        mixed = lazily(update.x, state.said, others, gammas, view)
        if self.gamma == "auto":
            state = state._replace(step=watch(state.step, state.said, others, view.in_weights))
        return MixResult(state, update._replace(x=mixed))


def lazily(
    x: Tensor, own: Tensor, others: Mapping[NodeId, Tensor], gammas: Mapping[NodeId, float], view: View
) -> Tensor:
    """Return (x - own) + the mean of reference vectors in which neighbor j has `gammas[j]` times its weight in W.

    `own` is this node's reference, `others` are its neighbors'. The rest of each neighbor's weight goes to `own`.
    """
    weights, self_weight = row(view, others)
    missing = sum(weight for j, weight in weights.items() if j not in others)
    known = sorted(weights.keys() & others.keys())
    kept = sum((1.0 - gammas[j]) * weights[j] for j in known)
    mixed = empty(len(own), own.dtype) if own.is_cpu else torch.empty_like(own)
    alphas = [gammas[j] * weights[j] for j in known]
    for part, x_part, own_part, *heard in stretches(mixed, x, own, *(others[j] for j in known)):
        torch.mul(own_part, self_weight + missing + kept, out=part)
        for other, alpha in zip(heard, alphas, strict=True):
            part.add_(other, alpha=alpha)
        part.add_(difference(x_part, own_part))
    return mixed
