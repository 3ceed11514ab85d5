"""The models by name: functions from the shape of an input to a module for batches (N, *shape).

Each imports torch only when it is called, so that the table, and a scenario's schema with it, does not need torch.
Parameter counts in the help texts are for the data of the papers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Literal

from netdfl.core.installing import pip_install
from netdfl.core.tables import by_name
from netdfl.core.units import PositiveInt

if TYPE_CHECKING:
    from torch.nn import Module
else:  # so that a scenario's schema can be made from the signatures without torch
    Module = object

_VGG11 = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")


def mlp(shape: tuple[int, ...], num_classes: int, /, *, hidden: list[PositiveInt] = [64]) -> Module:  # noqa: B006 - only read
    """A perceptron with the given hidden widths and ReLU, for any input."""
    return _perceptron((prod(shape), *hidden, num_classes))


def mnist_2nn(shape: tuple[int, ...], num_classes: int, /) -> Module:
    """The 784-200-200-10 perceptron of the MNIST settings: 199,210 parameters."""
    return _perceptron((prod(shape), 200, 200, num_classes))


def fashion_mlp(shape: tuple[int, ...], num_classes: int, /) -> Module:
    """The 784-128-128-10 perceptron of the Fashion-MNIST settings: 118,282 parameters."""
    return _perceptron((prod(shape), 128, 128, num_classes))


def _perceptron(widths: Sequence[int]) -> Module:
    from torch import nn

    layers: list[Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def cifar_cnn(shape: tuple[int, ...], num_classes: int, /) -> Module:
    """The small CIFAR network, two 5x5 convolutions and three linear layers: 797,962 parameters."""
    from torch import nn

    from netdfl.training.models.layers import ChannelsLast, PooledConv

    channels, height, width = _picture("cifar_cnn", shape, smallest=16)
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    return ChannelsLast(
        *(PooledConv(channels, 64, 5), PooledConv(64, 64, 5), nn.Flatten()),
        *(nn.Linear(64 * rows * columns, 384), nn.ReLU()),
        *(nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, num_classes)),
    )


def convnet(shape: tuple[int, ...], num_classes: int, /, *, width: PositiveInt = 128) -> Module:
    """Three 3x3 convolutions with instance norm and average pooling: 320,010 parameters on CIFAR-10."""
    from torch import nn

    from netdfl.training.models.layers import HalvingAverage

    channels, rows, columns = _picture("convnet", shape, smallest=16)
    layers: list[Module] = []
    for inputs in (channels, width, width):
        # A group for each channel is instance norm, in a quicker kernel.
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.GroupNorm(width, width)]
        layers += [nn.ReLU(inplace=True), HalvingAverage()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * (rows // 8) * (columns // 8), num_classes))


def vgg11_gn(shape: tuple[int, ...], num_classes: int, /, *, groups: PositiveInt = 32) -> Module:
    """VGG-11 with group norm: 9,231,114 parameters on CIFAR-10.

    Its weights begin as DisPFL's do: convolutions normal, of variance 2 / (9 outputs), the last layer normal, of
    standard deviation .01, biases 0. Group norm hides their scale, but not how far a step of SGD turns them.
    """
    from torch import nn

    channels, _, _ = _picture("vgg11_gn", shape, smallest=32)
    _check_groups("vgg11_gn", groups)
    layers: list[Module] = []
    for step in _VGG11:
        if isinstance(step, str):
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(channels, step, 3, padding=1), nn.GroupNorm(groups, step), nn.ReLU(inplace=True)]
        channels = step
    last = nn.Linear(channels, num_classes)
    for layer in (*layers, last):
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.01)
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)


def resnet18_gn(
    shape: tuple[int, ...],
    num_classes: int,
    /,
    *,
    stem: Literal["cifar", "torchvision"] = "cifar",
    groups: PositiveInt = 32,
) -> Module:
    """ResNet-18 with group norm: 11,173,962 parameters on CIFAR-10, 11,181,642 with torchvision's stem.

    DisPFL takes the CIFAR stem (one 3x3 convolution) and 32 groups, FL-Simulator torchvision's stem
    (7x7 with stride 2, max pooling) and 2 groups.
    """
    from netdfl.training.models.layers import resnet18

    channels, _, _ = _picture("resnet18_gn", shape, smallest=8)
    _check_groups("resnet18_gn", groups)
    return resnet18(channels, num_classes, small_stem=stem == "cifar", groups=groups)


def resnet18(
    shape: tuple[int, ...],
    num_classes: int,
    /,
    *,
    stem: Literal["cifar", "torchvision"] = "cifar",
    width: PositiveInt = 64,
) -> Module:
    """ResNet-18 with batch norm: 11,173,962 parameters on CIFAR-10, and 9,620 running statistics.

    `width` is the number of channels in the first stage; a thin network keeps the 18 layers, and trains quickly.
    """
    from netdfl.training.models.layers import resnet18 as residual

    channels, _, _ = _picture("resnet18", shape, smallest=8)
    return residual(channels, num_classes, small_stem=stem == "cifar", groups=None, width=width)


def _picture(model: str, shape: tuple[int, ...], *, smallest: int) -> tuple[int, int, int]:
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise ValueError(
            f"{model} takes pictures (channels, height, width) of {smallest}x{smallest} pixels or more, the data has "
            f"shape {shape}: use mlp, or other data"
        )
    return shape


def _check_groups(model: str, groups: int) -> None:
    if 64 % groups:
        raise ValueError(f"{model} can't put 64 channels into {groups} groups: use a power of two up to 64")


MODELS = by_name(mlp, mnist_2nn, fashion_mlp, cifar_cnn, convnet, vgg11_gn, resnet18_gn, resnet18)
"""Every model by name: a function `(shape, num_classes, /, *, ...)`."""


def from_torchvision(name: str) -> Callable[..., Module]:
    """Return the builder of torchvision's model `name`, without weights: `torchvision:NAME` in a scenario.

    Raises LookupError, with similar names, where torchvision has no such model, and ImportError, with the command to
    install it, where it does not import.
    """
    from difflib import get_close_matches

    try:
        from torchvision import models
    except (ImportError, OSError, RuntimeError) as error:
        why = next(iter(str(error).splitlines()), "")
        remedy = f"install the torchvision that belongs to this torch, by {pip_install('netdfl[vision]')}"
        raise ImportError(f"torchvision does not import here ({type(error).__name__}: {why}): {remedy}") from error
    known = models.list_models(module=models)
    if name not in known:
        near = get_close_matches(name, known, n=3)
        raise LookupError(f"torchvision has no model {name!r}, try {', '.join(near or known[:5])}")

    def build(shape: tuple[int, ...], num_classes: int, /) -> Module:
        _picture(name, shape, smallest=1)
        if shape[0] != 3:
            raise ValueError(f"{name} takes pictures of 3 channels, the data has shape {shape}: repeat the channel")
        made: Module = models.get_model(name, weights=None, num_classes=num_classes)
        return made

    return build
