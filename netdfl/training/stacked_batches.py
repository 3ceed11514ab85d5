"""The minibatches of many nodes, a step at a time, as stacked tensors: short ones are filled up and count nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from netdfl.training.classification import DrawnBatches


class StackedBatches:
    """What `DrawnBatches` is for a node, for n nodes that share a batch size; those with most steps come first."""

    def __init__(self, drawn: Sequence[DrawnBatches]) -> None:
        """Lay all nodes' examples into one store; `drawn` is in order of falling numbers of steps."""
        self.num_steps = [len(each.sizes) for each in drawn]
        self.x, self.y = torch.cat([each.x for each in drawn]), torch.cat([each.y for each in drawn])
        starts = np.cumsum([0, *(len(each.y) for each in drawn)])
        shape = (self.num_steps[0], len(drawn), drawn[0].places.shape[1])
        index, counts = np.zeros(shape, np.int64), np.zeros(shape[:2], np.int64)
        for row, each in enumerate(drawn):
            index[: self.num_steps[row], row] = each.places + starts[row]
            counts[: self.num_steps[row], row] = each.sizes
        self.active = (counts > 0).sum(1).tolist()
        self._widths = counts.max(1).tolist()
        self._index = torch.from_numpy(index).to(self.x.device)
        taken = np.arange(shape[2]) < counts[..., None]
        self._share = torch.from_numpy(taken / np.maximum(counts, 1)[..., None]).to(self.x)

    def at(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs (a, B, ...), labels (a, B), and what each example counts, (a, B), of the nodes active in `step`.

        They are the first a = `active[step]`; B is the largest minibatch among them.
        """
        rows, width = self.active[step], self._widths[step]
        index = self._index[step, :rows, :width].reshape(-1)
        x, y = self.x.index_select(0, index), self.y.index_select(0, index)
        return x.unflatten(0, (rows, width)), y.view(rows, width), self._share[step, :rows, :width]
