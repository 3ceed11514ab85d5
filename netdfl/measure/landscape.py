"""Landscapes of the loss along random directions that are normalized by filter (Li et al., NeurIPS 2018).

Networks can be rescaled without changing their outputs, so the length of a direction has no meaning by itself. Each
filter of a direction gets the norm of the same filter of the model; for biases and scales it is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from netdfl.measure.surface import LossSurface


def direction(surface: LossSurface, generator: torch.Generator) -> Tensor:
    """Return a random direction for the surface's model, normalized by filter; shape (d,)."""
    found = torch.randn(surface.dim, dtype=torch.float64, generator=generator)
    for way, model, p in zip(surface.filters(found), surface.filters(surface.at), surface.parameters, strict=True):
        if p.ndim > 1:
            way *= model.norm(dim=1, keepdim=True) / way.norm(dim=1, keepdim=True).clamp_min(1e-12)
        else:
            way.zero_()
    return found


def line(surface: LossSurface, way: Tensor, places: Sequence[float]) -> list[float]:
    """Return the loss at each of the positions `places` along the direction `way`; the model itself is at 0."""
    at = surface.at
    return [surface.value(at + place * way) for place in places]


def plane(surface: LossSurface, ways: tuple[Tensor, Tensor], places: Sequence[float]) -> list[list[float]]:
    """Return the loss over a square spanned by the directions `ways`, one row per position along the second.

    `places` are the positions along each direction; the model itself is at (0, 0).
    """
    at = surface.at
    return [[surface.value(at + x * ways[0] + y * ways[1]) for x in places] for y in places]
