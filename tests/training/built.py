"""Models of the catalog by name and seed, as a fleet has them."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from netdfl.training.models.build import seeded_module
from netdfl.training.models.catalog import MODELS


def build(
    model: str | Callable[..., nn.Module], shape: tuple[int, ...], num_classes: int, seed: int, /, **params: object
) -> nn.Module:
    """`model` is a name in `MODELS`, or a function like those."""
    make = MODELS[model] if isinstance(model, str) else model
    return seeded_module(lambda: make(shape, num_classes, **params), seed)
