"""Layers that compute what torch's do, in a way that is quicker on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d


class ChannelsLast(nn.Sequential):
    """A sequence whose pictures, shape (N, C, H, W), lie in memory with their channels last.

    So torch's max pooling on a CPU takes a tenth of the time. A GPU is given the pictures as they are.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The last layer's output."""
        if x.device.type == "cpu":
            # what to(memory_format=torch.channels_last) does, which can't be under vmap
            x = x.movedim(-3, -1).contiguous().movedim(-1, -3)
        scores: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return scores


class PooledConv(nn.Conv2d):
    """A convolution, the largest of every 2x2 pixels, and ReLU.

    The bias and ReLU come after the pooling, on a quarter of the numbers: both keep the order of what they are given,
    so the largest is the same.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Pictures of half the height and width, rounded down."""
        largest = max_pool2d(self._conv_forward(x, self.weight, None), 2)
        return (largest if self.bias is None else largest + self.bias[:, None, None]).relu()


class HalvingAverage(nn.Module):
    """The mean of every 2x2 pixels: pictures (N, C, H, W) of half the height and width, rounded down.

    On a CPU it is a product with a constant matrix, which takes an eighth of the time of torch's loop over pixels.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Average pooling."""
        if x.device.type != "cpu":
            return avg_pool2d(x, 2)
        *rest, height, width = (*x.shape[:-2], x.shape[-2] // 2, x.shape[-1] // 2)
        column = torch.arange(2 * width)
        halve = x.new_zeros(2, 2 * width, width)
        halve[:, column, column // 2] = 0.25
        rows = x[..., : 2 * height, : 2 * width].reshape(-1, 4 * width)
        return (rows @ halve.view(-1, width)).view(*rest, height, width)
