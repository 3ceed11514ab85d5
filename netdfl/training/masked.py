"""Local SGD on a sparse vector: each node has a mask, which is pruned and regrown after every local round.

    y <- y M at first, gradients g M         so that only coordinates of the mask ever move
    prune    in each layer the ceil(r_t n) smallest |y| of its n active coordinates
    regrow   as many inactive ones: the largest |gradient| of the last minibatch, or random ones
    r_t      (anneal / 2) (1 + cos(pi t / T)) for t < T, then 0

A round's vector is mixed under the mask of its training; the new mask is applied to the mean, so a coordinate that has
just regrown begins at the neighbors' value, not at zero.

Layers of fewer than two dimensions (biases, norms) stay dense, unless there are no others. With `erk` a layer's
density is in proportion to the sum of its dimensions over their product, scaled to the total density; with `uniform`
all are equally dense. Source: DisPFL; ERK from RigL, Evci et al. 2020.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from netdfl.core.rng import Streams
from netdfl.core.types import View
from netdfl.training.base import Gradient, LocalData, MixingIndependent, Received, StepRequests, StepSolver, Update
from netdfl.training.sgd import LocalSgd
from netdfl.training.wrapped import WrappedData

MASK, NEXT_MASK, MEAN = "mask", "next_mask", "mean"
Shapes = Sequence[tuple[int, ...]]


class MaskState(NamedTuple):
    """The node's mask, bool, shape (d,); None before its first local round."""

    mask: Tensor | None


@dataclass(frozen=True, kw_only=True)
class MaskedSgd(StepSolver, MixingIndependent):
    """Local SGD under a node's own mask; the mask and the next one are in `Update.extras`.

    Attributes:
        sgd: the local SGD.
        density: the share of coordinates in the mask.
        layout: the rule for the density of each layer.
        anneal: the share of a layer's coordinates that is replaced in the first round; it falls to 0.
        anneal_rounds: the round from which on masks stay unchanged.
        regrow: the choice of new coordinates: those with the largest gradients, or random ones.
        streams: the random streams.
    """

    sgd: LocalSgd
    density: float
    layout: Literal["erk", "uniform"]
    anneal: float
    anneal_rounds: int
    regrow: Literal["gradient", "random"]
    streams: Streams

    def init(self, x: Tensor, view: View) -> MaskState:
        """Return a state without a mask, because the mask is drawn in the first round."""
        return MaskState(None)

    def solve(
        self, state: MaskState, y: Tensor, received: Received, weight: float, data: LocalData, view: View
    ) -> StepRequests[tuple[MaskState, Update]]:
        """Run local steps under the mask, from `y` or from the mean of the last mixing; then prune and regrow."""
        mask = state.mask if state.mask is not None else self.first_mask(data.shapes, view).to(y.device)
        last: list[Gradient] = []

        def masked(gradient: Gradient) -> Gradient:
            last[:] = [gradient]
            return lambda at: gradient(at).mul_(mask)

        x, steps = yield self.sgd.steps_from(
            received.extras.get(MEAN, y) * mask, weight, WrappedData(data, masked), view
        )
        following = mask
        if steps:
            slopes = last[0](x).abs() if self.regrow == "gradient" else self._noise(x, view)
            following = self.evolved(mask, x.abs(), slopes, data.shapes, view.round)
        return MaskState(following), Update(y, x, {MASK: mask, NEXT_MASK: following})

    def first_mask(self, shapes: Shapes, view: View) -> Tensor:
        """Return a mask of random coordinates in each layer, with the layer's density."""
        mask = torch.ones(sum(math.prod(shape) for shape in shapes), dtype=torch.bool)
        for (start, size), density in zip(layers(shapes), self.densities(shapes), strict=True):
            rng = self.streams.rng("mask", view.node, start)
            off = rng.permutation(size)[round(density * size) :]
            mask[start + torch.from_numpy(off)] = False
        return mask

    def densities(self, shapes: Shapes) -> list[float]:
        """Return the density of each sparse layer."""
        sparse = [shapes[place] for place in _sparse(shapes)]
        return _erk(sparse, self.density) if self.layout == "erk" else [self.density] * len(sparse)

    def evolved(self, mask: Tensor, sizes: Tensor, slopes: Tensor, shapes: Shapes, round: int) -> Tensor:
        """Return a mask in which each layer's coordinates of largest `slopes` replace some of smallest `sizes`.

        `sizes` are absolute values of parameters; `slopes` are absolute values of gradients, or random numbers. The
        number of active coordinates stays the same. A pruned coordinate may come back at once.
        """
        rate = 0.5 * self.anneal * (1 + math.cos(math.pi * min(round / self.anneal_rounds, 1.0)))
        mask = mask.clone()
        for start, size in layers(shapes):
            layer = slice(start, start + size)
            active = mask[layer].clone()
            change = math.ceil(rate * int(active.sum()))
            if change > 0:
                active[torch.where(active, sizes[layer], torch.inf).topk(change, largest=False).indices] = False
                active[torch.where(active, -torch.inf, slopes[layer]).topk(change).indices] = True
                mask[layer] = active
        return mask

    def _noise(self, like: Tensor, view: View) -> Tensor:
        draws = self.streams.rng("regrow", view.node, view.round).random(like.numel())
        return torch.from_numpy(draws).to(like)


def layers(shapes: Shapes) -> Iterator[tuple[int, int]]:
    """Yield (start, size) of each sparse layer in the flat vector."""
    sizes = list(map(math.prod, shapes))
    starts = list(accumulate(sizes, initial=0))
    return ((starts[place], sizes[place]) for place in _sparse(shapes))


def _sparse(shapes: Shapes) -> list[int]:
    large = [place for place, shape in enumerate(shapes) if len(shape) >= 2]
    return large or list(range(len(shapes)))


def _erk(shapes: Shapes, density: float) -> list[float]:
    """Return layer densities by the ERK rule: proportional to sum(dims) / prod(dims), at most 1, `density` overall."""
    raw = [sum(shape) / math.prod(shape) for shape in shapes]
    sizes = [math.prod(shape) for shape in shapes]
    dense: set[int] = set()
    while True:
        free = [place for place in range(len(shapes)) if place not in dense]
        left = density * sum(sizes) - sum(sizes[place] for place in dense)
        scale = left / sum(raw[place] * sizes[place] for place in free) if free else 0.0
        full = {place for place in free if scale * raw[place] > 1}
        if not full:
            return [1.0 if place in dense else scale * raw[place] for place in range(len(shapes))]
        dense |= full
