"""Differentiable siamese augmentation (DSA): a random change of pictures, the same for all of a batch.

Each call of `dsa` draws one of these, all as likely, and its strength once for the whole batch of (H, W) pictures:

    color     x + b, b in [-1/2, 1/2]; then each channel's difference from the mean of the channels times s in [0, 2];
              then each value's difference from the mean of the picture times c in [1/2, 3/2]
    crop      shifted by up to an eighth of H and of W
    cutout    a rectangle of H/2 by W/2 set to 0, its middle anywhere, so it may extend over the edge
    flip      mirrored, with probability 1/2
    scale     height and width each 1/1.2 to 1.2 times what they were
    rotate    by up to 15 degrees

Pixels from outside of a picture are 0: the mean color, where inputs are standardized. Source: Zhao and Bilen 2021,
with the constants of their code. DynaFed's code draws the kind of change once for a batch, as here, but its strength
for each picture. Importing this file is cheap: torch comes with the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import cos, radians, sin
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Transformation: TypeAlias = Literal["color", "crop", "cutout", "flip", "scale", "rotate"]
TRANSFORMATIONS: tuple[Transformation, ...] = get_args(Transformation)


def dsa(
    x: Tensor, rng: np.random.Generator, /, *, transformations: tuple[Transformation, ...] = TRANSFORMATIONS
) -> Tensor:
    """Change pictures `x`, (N, C, H, W), by a random transformation; if `transformations` is empty, return `x` itself.

    The result is of the same shape and differentiable by `x`, any number of times. All random numbers come from `rng`.
    Raises ValueError where `x` holds no pictures.
    """
    if not transformations:
        return x
    if x.ndim != 4:
        raise ValueError(
            f"can't augment a batch of shape {tuple(x.shape)}: expected pictures, (N, C, H, W); "
            "use no augmentation for other inputs"
        )
    return _DRAWN[transformations[int(rng.integers(len(transformations)))]](x, rng)


def colored(x: Tensor, brightness: float, saturation: float, contrast: float) -> Tensor:
    """Add `brightness` to pictures, and scale their saturation and contrast.

    Saturation has no effect on a single channel.
    """
    x = x + brightness
    gray = x.mean(1, keepdim=True)
    x = (x - gray) * saturation + gray
    mean = x.mean((1, 2, 3), keepdim=True)
    return (x - mean) * contrast + mean


def shifted(x: Tensor, down: int, right: int) -> Tensor:
    """Move pictures by whole pixels."""
    from torch.nn.functional import pad

    return pad(x, (right, -right, down, -down))


def cut_out(x: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    """Set a rectangle to 0 that begins at (`top`, `left`) and may extend over the edges."""
    kept = x.new_ones(x.shape[2:])
    kept[max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)] = 0
    return x * kept


def scaled(x: Tensor, height: float, width: float) -> Tensor:
    """Stretch pictures by these factors around the middle."""
    return _seen_through(x, ((1 / width, 0.0), (0.0, 1 / height)))


def rotated(x: Tensor, degrees: float) -> Tensor:
    """Rotate pictures around the middle, counterclockwise."""
    across, along = cos(radians(degrees)), sin(radians(degrees))
    return _seen_through(x, ((across, -along), (along, across)))


def _seen_through(x: Tensor, matrix: tuple[tuple[float, float], tuple[float, float]]) -> Tensor:
    """Return pictures turned or stretched around the middle: the pixel at p comes from the place `matrix` times p.

    p is (right, down) from the center. Values between pixels are interpolated bilinearly.
    """
    from torch.nn.functional import affine_grid, grid_sample

    (rr, rd), (dr, dd) = matrix
    ratio = x.shape[2] / x.shape[3]
    map_ = x.new_tensor([[rr, rd * ratio, 0.0], [dr / ratio, dd, 0.0]]).expand(len(x), 2, 3)
    return grid_sample(x, affine_grid(map_, list(x.shape), align_corners=False), align_corners=False)


def _crop(x: Tensor, rng: np.random.Generator) -> Tensor:
    down, right = (int(rng.integers(-most, most + 1)) for most in _part_of(x, 1 / 8))
    return shifted(x, down, right)


def _cutout(x: Tensor, rng: np.random.Generator) -> Tensor:
    sizes = height, width = _part_of(x, 1 / 2)
    top, left = (int(rng.integers(n + 1 - size % 2)) - size // 2 for n, size in zip(x.shape[2:], sizes, strict=True))
    return cut_out(x, top, left, height, width)


def _scale(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Stretch pictures by random factors whose inverses are uniform, as in the authors' code."""
    height, width = 1 / rng.uniform(1 / 1.2, 1.2, size=2)
    return scaled(x, height, width)


def _part_of(x: Tensor, share: float) -> tuple[int, int]:
    """Return `share` of the pictures' height and width, in pixels, rounded."""
    height, width = (int(length * share + 0.5) for length in x.shape[2:])
    return height, width


_DRAWN: Mapping[Transformation, Callable[[Tensor, np.random.Generator], Tensor]] = MappingProxyType(
    {
        "color": lambda x, rng: colored(x, rng.uniform(-0.5, 0.5), rng.uniform(0, 2), rng.uniform(0.5, 1.5)),
        "crop": _crop,
        "cutout": _cutout,
        "flip": lambda x, rng: x.flip(3) if rng.random() < 0.5 else x,
        "scale": _scale,
        "rotate": lambda x, rng: rotated(x, rng.uniform(-15, 15)),
    }
)
