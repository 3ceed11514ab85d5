"""The networks of the catalog in torch's own layers, to be compared with: in value by tests, in speed by benchmarks."""

from __future__ import annotations

from torch import nn

from netdfl.training.models.layers import HalvingAverage, PooledConv


def of_torch_alone(model: nn.Module) -> nn.Sequential:
    """The network with copies of its parameters, for one with a sequence of layers; linear layers are shared."""
    layers: list[nn.Module] = []
    for layer in model.children():
        if isinstance(layer, PooledConv):
            conv = nn.Conv2d(layer.in_channels, layer.out_channels, layer.kernel_size[0]).to(layer.weight)
            conv.load_state_dict(layer.state_dict())
            layers += [conv, nn.ReLU(), nn.MaxPool2d(2)]
        elif isinstance(layer, nn.GroupNorm):
            norm = nn.InstanceNorm2d(layer.num_channels, affine=True).to(layer.weight)
            norm.load_state_dict(layer.state_dict())
            layers.append(norm)
        elif isinstance(layer, HalvingAverage):
            layers.append(nn.AvgPool2d(2))
        else:
            layers.append(nn.ReLU() if isinstance(layer, nn.ReLU) else layer)
    return nn.Sequential(*layers)
