"""Two methods that reach no agreement, kept for comparison: quantized DFedAvgM as printed, and the bare model.

    literal (Sun, Li, Wang 2022, Eq. 7)   q_i = C(z_i - x_i),  x_i+ = x_i + sum_l W_il q_l
    bare                                  x_i+ = W_ii x_i + sum_j W_ij C(x_j)

With C = I the first is X + W (Z - X), not W Z: the mean is right, but the initial differences between nodes never
shrink. (With reference copies, which the paper must mean, it is `Choco` with gamma 1.) The second compresses the model
itself, so the error grows with the model and the mean drifts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from netdfl.compression.base import Compressor
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Outbox, View
from netdfl.mixing.base import MixResult, RowMixing
from netdfl.mixing.compressed.gossip import lazily
from netdfl.mixing.compressed.references import compress
from netdfl.mixing.payloads import encoded_vector, to_all, unpack_encoded
from netdfl.training.base import Update


class Said(NamedTuple):
    """The vector that this node sent in the current step, as its neighbors decode it."""

    vector: Tensor


@dataclass(frozen=True, kw_only=True)
class LiteralQuantized(RowMixing):
    """Quantized DFedAvgM by Eq. 7 as printed, which averages differences but not models."""

    compressor: Compressor
    streams: Streams = field(default_factory=lambda: Streams(0))

    @property
    def same_to_all(self) -> bool:
        """Whether a node sends the same message to all neighbors.

        False for a subclass with an `outgoing` of its own.
        """
        return type(self).outgoing.__module__ == __name__

    def init(self, x: Tensor, view: View) -> Said:
        """Return a zero vector: nothing was sent yet."""
        return Said(x.new_zeros(x.shape))

    def outgoing(self, state: Said, update: Update, step: int, view: View) -> tuple[Said, Outbox]:
        """Send the compressed move of the local round, q = C(z - x), from its start x to its end z."""
        code = compress(self.compressor, update.x - update.before, self.streams, view, step)
        return Said(unpack_encoded(code, self.compressor, update.x)), to_all(view, code)

    def mix(self, state: Said, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        """Compute x+ = x + sum_l W_il q_l from the compressed moves q, with the mixing matrix W."""
        moved = _mean(self.compressor, state.vector, inbox, view)
        return MixResult(state, update._replace(x=moved.add_(update.before)))


@dataclass(frozen=True, kw_only=True)
class BareModel(LiteralQuantized):
    """Gossip of directly compressed models, which a scenario gets only by `scheme: unsafe`."""

    def outgoing(self, state: Said, update: Update, step: int, view: View) -> tuple[Said, Outbox]:
        """Send the compressed model, C(x)."""
        return state, to_all(view, compress(self.compressor, update.x, self.streams, view, step))

    def mix(self, state: Said, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        """Compute x+ = W_ii x + sum_j W_ij C(x_j) from the neighbors' compressed models, with the mixing matrix W."""
        return MixResult(state, update._replace(x=_mean(self.compressor, update.x, inbox, view)))


def _mean(compressor: Compressor, own: Tensor, inbox: Inbox, view: View) -> Tensor:
    others = {message.src: encoded_vector(message, compressor, own) for message in inbox}
    return lazily(own, own, others, dict.fromkeys(others, 1.0), view)
