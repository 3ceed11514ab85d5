"""Random augmentations of a training batch, on whole tensors. This table can be read without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from netdfl.core.tables import by_name
from netdfl.core.units import PositiveInt, Probability

if TYPE_CHECKING:
    from torch import Tensor
else:  # so that a scenario's schema can be made from the signatures without torch
    Tensor = object


def none(x: Tensor, rng: np.random.Generator, /) -> Tensor:
    """Return the batch unchanged."""
    return x


def crop_flip(
    x: Tensor,
    rng: np.random.Generator,
    /,
    *,
    padding: PositiveInt = 4,
    crop: Probability = 1.0,
    flip: Probability = 0.5,
) -> Tensor:
    """Shift each picture by up to `padding` pixels both ways with probability `crop`; mirror with probability `flip`.

    `x` has shape (N, C, H, W) and is standardized, so the zeros that are shifted in are the mean color. Returns a fresh
    tensor of the same shape on the same device.
    """
    import torch
    from torch.nn.functional import pad

    count, channels, height, width = x.shape
    corners = rng.integers(2 * padding + 1, size=(2, count))
    mirrored = rng.random(count) < flip
    tops, lefts = np.where(rng.random(count) < crop, corners, padding)
    rows = tops[:, None] + np.arange(height)
    columns = lefts[:, None] + np.where(mirrored[:, None], np.arange(width)[::-1], np.arange(width))
    index = (
        torch.arange(count)[:, None, None, None],
        torch.arange(channels)[None, :, None, None],
        torch.from_numpy(rows)[:, None, :, None],
        torch.from_numpy(columns)[:, None, None, :],
    )
    return pad(x, (padding,) * 4)[tuple(part.to(x.device) for part in index)]


AUGMENTATIONS = by_name(none, crop_flip)
"""Every augmentation by name: a function `(x, rng, /, *, ...)`."""
