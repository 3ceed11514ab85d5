"""Averaging of sparse vectors, each coordinate over the nodes whose mask selects it; masks are sent along.

    x_i = (sum_j x_j M_j / sum_j M_j) M_i+      j over the node and its neighbors

M are the masks that the vectors were trained under, M_i+ is the node's next one. A message holds the nonzero
coordinates and the mask, one bit for each. Where mixing comes first in a round, the node's own vector stays as it was
trained, and its next round begins at the mean. Source: DisPFL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from netdfl.compression.arrays import snapshot, to_tensor
from netdfl.core.types import Inbox, Message, Outbox, Payload, View
from netdfl.mixing.base import MixResult, RowMixing
from netdfl.mixing.payloads import MODEL, absurd, to_all, vector
from netdfl.training.base import Received, Update
from netdfl.training.masked import MASK, MEAN, NEXT_MASK
from netdfl.training.sgd import NoState, Stateless


@dataclass(frozen=True)
class MaskedAverage(Stateless, RowMixing):
    """Averaging of sparse vectors under masks, which the local solver passes in `Update.extras` as bool vectors.

    Without a mask all coordinates are active; without a next mask the mean keeps the mask of training. A missing
    neighbor does not count. With `for_next`, the mean does not replace this round's vector; the solver gets it as
    `MEAN`, and begins its next round there.
    """

    for_next: bool = False

    def outgoing(self, state: NoState, update: Update, step: int, view: View) -> tuple[NoState, Outbox]:
        """Send the coordinates that the node's mask selects, and the mask."""
        mask = _own(update)
        bits = torch.from_numpy(np.packbits(mask.cpu().numpy(), bitorder="little"))
        return state, to_all(view, Payload({MODEL: snapshot(update.x[mask]), MASK: snapshot(bits)}))

    def mix(self, state: NoState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        """Return the mean of each coordinate over the nodes whose mask selects it, under the node's next mask."""
        own = _own(update)
        total, count = update.x * own, own.to(update.x.dtype)
        for message in inbox:
            mask = _mask(message, own)
            total[mask] += vector(message, total[mask])
            count += mask
        mean = total.div_(count.clamp_(min=1)).mul_(update.extras.get(NEXT_MASK, own))
        if self.for_next:
            return MixResult(state, update, Received({MEAN: mean}))
        return MixResult(state, update._replace(x=mean))


def _own(update: Update) -> Tensor:
    mask = update.extras.get(MASK)
    return torch.ones_like(update.x, dtype=torch.bool) if mask is None else mask


def _mask(message: Message, like: Tensor) -> Tensor:
    """Return the mask in a message, of the shape of `like`. Raises MalformedMessage if it is missing or invalid."""
    array, size = message.payload.arrays.get(MASK), like.numel()
    if array is None or array.dtype != "uint8" or array.shape != (-(-size // 8),):
        got = "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
        raise absurd(message, f"a mask of {size} bits", got)
    bits = np.unpackbits(to_tensor(array).numpy(), count=size, bitorder="little")
    return torch.from_numpy(bits.view(np.bool_)).to(like.device)
