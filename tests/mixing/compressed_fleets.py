"""A fleet that mixes and does nothing else: no gradient, any graph, any loss. Shared by the tests of compression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, NodeId, View
from netdfl.mixing.compressed.references import Differences
from netdfl.topology.catalog import TOPOLOGIES, WEIGHTS
from netdfl.topology.network import Network
from netdfl.training.base import Update

HERE, THERE = View(0, 0, 2, (1,), (1,), 0.5, {1: 0.5}, {1: 0.5}), View(1, 0, 2, (0,), (0,), 0.5, {0: 0.5}, {0: 0.5})
"""Of two nodes, each at its place in round 0."""


def net(kind: str, num_nodes: int, weights: str | None = None, seed: int = 3, **options: Any) -> Network:
    """A network by the names that scenarios use."""
    topology = TOPOLOGIES[kind](num_nodes, Streams(seed), **options)
    return Network(topology, partial(WEIGHTS[weights]) if weights else None)


def differences(name: str = "qsgd", *, mass: bool = False, common_start: bool = False, **options: Any) -> Differences:
    """Differences compressed by the compressor `name`."""
    compressor = COMPRESSORS[name](**options)
    return Differences(compressor=compressor, streams=Streams(5), mass=mass, common_start=common_start)


def normal(num_nodes: int, dim: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Starting vectors, shape (num_nodes, dim), from N(0, 1)."""
    return torch.from_numpy(np.random.default_rng(2).standard_normal((num_nodes, dim))).to(dtype)


@dataclass
class Fleet:
    """All nodes' vectors and states under one mixing; `epochs` counts restarts, `lost_messages` what was lost."""

    mixing: Any
    network: Network
    start: Tensor
    lost: Callable[[Message], bool] = lambda message: False
    lost_messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.round = 0
        self.x = [row.clone() for row in self.start]
        self.epochs = [0] * len(self.x)
        self.states = [self.mixing.init(x, self.network.view(i, 0)) for i, x in enumerate(self.x)]

    def play(self, rounds: int, each: Callable[[], None] = lambda: None) -> Fleet:
        """Mix `rounds` times; call `each` after every one."""
        for _ in range(rounds):
            for step in range(self.mixing.num_steps(self.round, self.network.view(0, self.round))):
                self._step(step)
            self.round += 1
            each()
        return self

    def _step(self, step: int) -> None:
        views = [self.network.view(i, self.round) for i in range(len(self.x))]
        boxes: list[list[Message]] = [[] for _ in self.x]
        for i, x in enumerate(self.x):
            self.states[i], outbox = self.mixing.outgoing(self.states[i], Update(x, x), step, views[i])
            for j, payload in outbox.items():
                message = Message(i, j, Kind.DATA, self.epochs[i], self.round, step, 0, payload)
                (self.lost_messages if self.lost(message) else boxes[j]).append(message)
        for i, x in enumerate(self.x):
            came = {message.src for message in boxes[i]}
            missing = [j for j in views[i].in_neighbors or () if j not in came]
            mixed = self.mixing.mix(self.states[i], Update(x, x), Inbox(boxes[i], missing), step, views[i])
            self.states[i], self.x[i] = mixed.state, mixed.update.x

    @property
    def weights(self) -> Tensor:
        """w of every node."""
        return torch.tensor([self.mixing.weight(state) for state in self.states], dtype=torch.float64)

    @property
    def total(self) -> Tensor:
        """The sum of x over the nodes."""
        return torch.stack(self.x).sum(0)

    def error(self) -> float:
        """The largest distance of a coordinate of z = x / w from the mean of the starts."""
        z = torch.stack(self.x) / self.weights[:, None].to(self.start.dtype)
        return float((z - self.start.mean(0)).abs().max())

    def squared(self) -> float:
        """The sum of squares of the distances from the mean of the starts."""
        return float((torch.stack(self.x) - self.start.mean(0)).square().sum())


def each_lost(probability: float, until_round: int = 10**9) -> Callable[[Message], bool]:
    """Lose each message with `probability` before round `until_round`, by its own key."""
    streams = Streams(9)

    def lost(message: Message) -> bool:
        key: tuple[NodeId | int, ...] = (message.src, message.dst, message.round, message.step)
        return message.round < until_round and streams.uniform("lost", *key) < probability

    return lost
