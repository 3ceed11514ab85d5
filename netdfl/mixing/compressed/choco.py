"""CHOCO: gossip over references, X+ = (X - X^) + W' X^, W' = I + gamma (W - I), for static undirected graphs.

Every node keeps a reference x^ of its own vector and copies of its neighbors', and sends C(x - x^).
Written so, it is plain gossip on the references, lazier by gamma, and the node's own residual is
added; with C = I and gamma = 1 it is D-PSGD bit for bit. The mean never changes for any C
(Koloskova, Stich, Jaggi 2019; the local step is taken first, as in their CHOCO-SGD).

With `steps` Q it is DeLi-CoCo (Q exchanges a round).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from netdfl.core.types import Inbox, NodeId, Outbox, View
from netdfl.mixing.base import ByRows, Mixed
from netdfl.mixing.compressed.copies import Came, Heard, Reference
from netdfl.mixing.compressed.references import Differences, address, ask_others
from netdfl.mixing.compressed.step_size import Gamma, StepSize, first_step_size, watch
from netdfl.mixing.gossip import row
from netdfl.mixing.payloads import step_size
from netdfl.training.base import Update


class ChocoState(NamedTuple):
    """The node's own reference, what it knows of the others', and gamma."""

    own: Reference
    heard: Heard
    step: StepSize


@dataclass(frozen=True, kw_only=True)
class Choco(ByRows):
    """CHOCO-Gossip after the local round (CHOCO-SGD).

    A neighbor whose copy is not up to date gives its weight to the node itself (`self`: the mean is
    then not preserved), or its last reference stands in (`last`).
    """

    differences: Differences
    gamma: Gamma = "auto"
    on_missing: Literal["self", "last"] = "self"

    def init(self, x: Tensor, view: View) -> ChocoState:
        """References where all start, gamma from a trial."""
        heard = self.differences.first(x)
        common_start, compressor = self.differences.common_start, self.differences.compressor
        step = first_step_size(self.gamma, compressor, x.numel(), common_start=common_start)
        return ChocoState(heard.start, heard, step)

    def figures(self, state: ChocoState) -> Mapping[str, float]:
        """What lost references cost, and gamma. See `Counting`."""
        return {**state.heard.tally.figures(), "gamma": state.step.gamma}

    def outgoing(self, state: ChocoState, update: Update, step: int, view: View) -> tuple[ChocoState, Outbox]:
        """x^ <- x^ + C(x - x^), the same difference for all neighbors."""
        own, code = self.differences.send(state.own, update.x, view, step)
        heard, outbox = address(state.heard, state.own, code, {"gamma": state.step.gamma}, view.out_neighbors)
        heard, outbox = ask_others(heard, outbox)
        return state._replace(own=own, heard=heard), outbox

    def mix(self, state: ChocoState, update: Update, inbox: Inbox, step: int, view: View) -> Mixed:
        """x+ = (x - x^) + (1 - gamma) x^ + gamma sum_j W_ij x^_j."""
        heard, came = self.differences.receive(state.heard, inbox, view)
        others, gammas = self._current(state, heard, came, inbox)
        mixed = lazily(update.x, state.own.vector, others, gammas, view)
        step_size = watch(state.step, state.own.vector, others, view.in_weights) if self.gamma == "auto" else state.step
        return Mixed(ChocoState(state.own, heard, step_size), update._replace(x=mixed))

    def _current(
        self, state: ChocoState, heard: Heard, came: Mapping[NodeId, tuple[Came, ...]], inbox: Inbox
    ) -> tuple[dict[NodeId, Tensor], dict[NodeId, float]]:
        others = {j: heard.copies[j].vector for j, decoded in came.items() if decoded}
        if self.on_missing == "last":
            others = {j: copy.vector for j, copy in heard.copies.items() if copy.version > 0}
        sent = {message.src: message for message in inbox if "version" in message.payload.meta}
        gamma = state.step.gamma
        return others, {j: min(gamma, step_size(sent[j], "gamma")) if j in sent else gamma for j in others}


def lazily(
    x: Tensor, own: Tensor, others: Mapping[NodeId, Tensor], gammas: Mapping[NodeId, float], view: View
) -> Tensor:
    """(x - own) + W' (own, others): W' moves only a part `gammas[j]` of each neighbor's weight, the rest stays."""
    weights, self_weight = row(view, others)
    missing = sum(weight for j, weight in weights.items() if j not in others)
    known = sorted(weights.keys() & others.keys())
    kept = sum((1.0 - gammas[j]) * weights[j] for j in known)
    mixed = own * (self_weight + missing + kept)
    for j in known:
        mixed.add_(others[j], alpha=gammas[j] * weights[j])
    return mixed.add_(x - own)
