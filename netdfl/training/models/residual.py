"""ResNet-18 with group norm."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

_WIDTHS = (64, 128, 256, 512)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a way around them, (N, inputs, H, W) to (N, outputs, H/stride, W/stride)."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int) -> None:
        """Project the way around with a 1x1 convolution where the shape changes."""
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.GroupNorm(groups, outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(groups, outputs),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.around = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(groups, outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        return relu(self.body(x) + self.around(x))


def resnet18(channels: int, num_classes: int, *, small_stem: bool, groups: int) -> nn.Sequential:
    """Four stages of two blocks; the small stem is one 3x3 convolution, the large one 7x7 / 2 and max pooling."""
    width = _WIDTHS[0]
    kernel, stride = (3, 1) if small_stem else (7, 2)
    layers: list[nn.Module] = [
        nn.Conv2d(channels, width, kernel, stride, padding=kernel // 2, bias=False),
        nn.GroupNorm(groups, width),
        nn.ReLU(inplace=True),
    ]
    if not small_stem:
        layers.append(nn.MaxPool2d(3, 2, padding=1))
    for stage, outputs in enumerate(_WIDTHS):
        layers += [
            ResidualBlock(width, outputs, 1 if stage == 0 else 2, groups),
            ResidualBlock(outputs, outputs, 1, groups),
        ]
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))
