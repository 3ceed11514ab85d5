"""DeepSqueeze: gossip over compressed models with error feedback, X+ = (X - C) + W' C, W' = I + gamma (W - I).

    m = x + e,  c = C(m),  e+ = m - c        and c goes to every neighbor

Nothing is kept of the neighbors, so the graph may change every round, and a lost message needs no mending. But it
shifts the mean, for good: the sender counts c as said and its neighbor has not heard it. Such shifts add up as long as
messages are lost, because the c of nodes that agree still differ by what C leaves out; CHOCO's differences vanish
where nodes agree, and losses with them. The mean never changes for any C while nothing is lost (Tang et al. 2019).
What is compressed is the model itself, so without a falling step size the nodes agree only up to the compressor's error
on it; CHOCO has no such floor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from netdfl.compression.base import Compressor
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Outbox, Payload, View
from netdfl.mixing.base import ByRows, Mixed
from netdfl.mixing.compressed.choco import lazily
from netdfl.mixing.compressed.references import compress
from netdfl.mixing.compressed.step_size import Gamma, StepSize, first_step_size, watch
from netdfl.mixing.payloads import encoded_vector, step_size, to_all, unpack_encoded
from netdfl.training.base import Update


class SqueezeState(NamedTuple):
    """e, what was not said yet; c, what was said in this step; and gamma."""

    error: Tensor
    said: Tensor
    step: StepSize


@dataclass(frozen=True, kw_only=True)
class DeepSqueeze(ByRows):
    """Gossip on what all can hear of each other. A missing neighbor gives its weight to the node itself."""

    compressor: Compressor
    streams: Streams = field(default_factory=lambda: Streams(0))
    gamma: Gamma = "auto"

    def init(self, x: Tensor, view: View) -> SqueezeState:
        """No error yet, gamma from a trial."""
        nothing = x.new_zeros(x.shape)
        return SqueezeState(nothing, nothing, first_step_size(self.gamma, self.compressor, x.numel()))

    def outgoing(self, state: SqueezeState, update: Update, step: int, view: View) -> tuple[SqueezeState, Outbox]:
        """c = C(x + e), the same for all neighbors."""
        meant = update.x + state.error
        code = compress(self.compressor, meant, self.streams, view, step)
        said = unpack_encoded(code, self.compressor, meant)
        payload = Payload(code.arrays, {**code.meta, "gamma": state.step.gamma})
        return state._replace(error=meant - said, said=said), to_all(view, payload)

    def mix(self, state: SqueezeState, update: Update, inbox: Inbox, step: int, view: View) -> Mixed:
        """x+ = x + gamma (sum_j W_ij c_j - c_i)."""
        came = {m.src: (encoded_vector(m, self.compressor, update.x), step_size(m, "gamma")) for m in inbox}
        others = {j: said for j, (said, _) in came.items()}
        gammas = {j: min(state.step.gamma, gamma) for j, (_, gamma) in came.items()}
        mixed = lazily(update.x, state.said, others, gammas, view)
        if self.gamma == "auto":
            state = state._replace(step=watch(state.step, state.said, others, view.in_weights))
        return Mixed(state, update._replace(x=mixed))
