"""Own parts of every kind with a mistake that no trial meets: it is made in the middle of a run, once FLAG is there."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import netdfl
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.compression.identity import IdentityCompressor
from netdfl.core.control import Evaluate
from netdfl.scenario.model.world import SimulatedOptions
from netdfl.topology.base import Topology
from netdfl.topology.catalog import TOPOLOGIES
from netdfl.worlds.catalog import WorldEntry
from netdfl.worlds.simulated.world import SimulatedWorld

FLAG = Path(__file__).with_name("flag")


def slip(now: bool = True) -> None:
    """A mistake as people make them."""
    if now and FLAG.exists():
        {}.nothing  # type: ignore[attr-defined]  # noqa: B018


def within(*names: str) -> bool:
    """Whether a function of one of these names is under way, or one of a file that is named so."""
    return any(frame.name in names or Path(frame.filename).stem in names for frame in traceback.extract_stack())


class Examples(torch.utils.data.Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, k: int) -> tuple[Tensor, int]:
        slip(within("steps", "drawn"))
        return torch.randn(4), k % 3


def dataset() -> Any:
    return netdfl.Datasets(clients=[Examples() for _ in range(3)], test=Examples())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        slip(self.training and torch.is_grad_enabled())
        return self.last(x.flatten(1))


class Misfit(Net):
    def forward(self, x: Tensor) -> Tensor:
        if self.training and torch.is_grad_enabled() and FLAG.exists():
            x = x[:, :, :3]
        return self.last(x.flatten(1))


def loss(outputs: Tensor, targets: Tensor, /) -> Tensor:
    slip(torch.is_grad_enabled() and within("slope"))
    return cross_entropy(outputs, targets)


def metric(outputs: Tensor, targets: Tensor, /) -> float:
    slip(within("evaluate"))
    return 1.0


def augmentation(x: Tensor, rng: Any, /) -> Tensor:
    slip(within("steps", "drawn"))
    return x


@dataclass(frozen=True)
class Around:
    """Another part, whose `methods` make the mistake in round 1."""

    part: Any
    methods: str

    def __getattr__(self, name: str) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            slip(1 in [getattr(each, "round", each) for each in args])
            return getattr(self.part, name)(*args, **kwargs)

        return method if name in self.methods.split() else getattr(self.part, name)


def solver(exchange: Any, /) -> Any:
    made = ALGORITHMS["dfedavg"].build(exchange, lr=0.1)
    return replace(made, local=Around(made.local, "train solve"))


def mixing(exchange: Any, /) -> Any:
    made = ALGORITHMS["dfedavg"].build(exchange, lr=0.1)
    return replace(made, mixing=Around(made.mixing, "mix"))


def start(exchange: Any, /) -> Any:
    made = ALGORITHMS["dfedavg"].build(exchange, lr=0.1)
    return replace(made, start=Around(made.start, "trained"))


class Compressor(IdentityCompressor):
    def compress(self, x: Tensor, rng: Any) -> Any:
        slip(within("gossip"))
        return super().compress(x, rng)


def compression() -> Any:
    return Compressor()


class Loss:
    def lost(self, unit: Any) -> bool:
        slip(unit.round == 1)
        return False


def link_loss(seed: int, /) -> Any:
    return Loss()


def latency() -> Any:
    from netdfl.links.rules.latency import Delay

    def quantile(share: float) -> float:
        slip(not within("trials_without_data"))
        return 1e6

    return Delay(fifo=True, quantile=quantile)


def topology(num_nodes: int, streams: Any, /) -> Any:
    ring = TOPOLOGIES["ring"](num_nodes, streams)

    def draw(block: int) -> Any:
        slip(block >= 4)
        return ring.graph(0)

    return Topology(num_nodes, draw, directed=False, redraw_every=1)


class Selection:
    receivers_know = True

    def select(self, node: int, round: int, candidates: Any) -> Any:
        slip(round == 1)
        return candidates


def selection(num_nodes: int, streams: Any, /) -> Any:
    return Selection()


def compute_time(streams: Any, /) -> Any:
    def time(node: int, round: int) -> int:
        slip(round == 1)
        return 10**6

    return time


class World(SimulatedWorld):
    def order(self, node: int, order: Any) -> None:
        slip(isinstance(order, Evaluate))
        super().order(node, order)


WORLD = WorldEntry(options=SimulatedOptions, make=World, repeatable=True)
