"""ResNet-18 with group norm, or with batch norm."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu


def normed(channels: int, groups: int | None) -> nn.Module:
    """Group norm; without `groups` batch norm."""
    return nn.BatchNorm2d(channels) if groups is None else nn.GroupNorm(groups, channels)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a way around them, (N, inputs, H, W) to (N, outputs, H/stride, W/stride)."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int | None) -> None:
        """Project the way around with a 1x1 convolution where the shape changes."""
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            normed(outputs, groups),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            normed(outputs, groups),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.around = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), normed(outputs, groups))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        return relu(self.body(x) + self.around(x))


def resnet18(
    channels: int, num_classes: int, *, small_stem: bool, groups: int | None, width: int = 64
) -> nn.Sequential:
    """Four stages of two blocks; the small stem is one 3x3 convolution, the large one 7x7 / 2 and max pooling.

    Without `groups` it has batch norm. The first stage has `width` channels, each further one twice as many.
    """
    widths = [width << stage for stage in range(4)]
    kernel, stride = (3, 1) if small_stem else (7, 2)
    layers: list[nn.Module] = [
        nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False),
        normed(width, groups),
        nn.ReLU(inplace=True),
    ]
    if not small_stem:
        layers.append(nn.MaxPool2d(3, 2, padding=1))
    for stage, outputs in enumerate(widths):
        layers += [
            ResidualBlock(width, outputs, 1 if stage == 0 else 2, groups),
            ResidualBlock(outputs, outputs, 1, groups),
        ]
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))
