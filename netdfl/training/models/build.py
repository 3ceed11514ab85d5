"""Build a model from a seed: the same parameters on every node, and no trace in torch's own state."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from netdfl.training.drawing import aside
from netdfl.training.models.catalog import MODELS

_RUNNING = frozenset({"running_mean", "running_var", "num_batches_tracked"})


def build(
    model: str | Callable[..., nn.Module], shape: tuple[int, ...], num_classes: int, seed: int, /, **params: object
) -> nn.Module:
    """A model on the CPU, initialized by `seed` alone; `model` is a name in `MODELS` or a function like those.

    torch's global random state is as it was before. Raises ValueError where the model does not fit
    the data, or keeps running statistics.
    """
    make = MODELS[model] if isinstance(model, str) else model
    with aside():
        torch.default_generator.manual_seed(seed)
        module = make(shape, num_classes, **params)
    if not isinstance(module, nn.Module):
        raise ValueError(
            f"the model function {make.__name__} returned {type(module).__name__}: return a torch.nn.Module"
        )
    refuse_running_statistics(module)
    return module


def refuse_running_statistics(module: nn.Module) -> None:
    """Raise ValueError if the module keeps running statistics (batch norm).

    They are buffers, not parameters: mixing would leave every node with its own, and the average
    model with none that fit it.
    """
    kept = [name for name, _ in module.named_buffers() if name.rpartition(".")[2] in _RUNNING]
    if kept:
        layer = kept[0].rpartition(".")[0] or type(module).__name__
        raise ValueError(
            f"the model keeps running statistics (batch norm) in {layer!r}, which are no parameters and are neither "
            "sent nor averaged: use group norm (torch.nn.GroupNorm), or track_running_stats=False"
        )
