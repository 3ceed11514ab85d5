"""What computes for the nodes of a host: on its share of the cores, at the pace that the schedule sets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from netdfl.core.clock import NS_PER_S
from netdfl.host.blueprint import Blueprint
from netdfl.node.worker import BatchWorker, ThreadWorker, Worker
from netdfl.training.alone import cores, one_by_one

T = TypeVar("T")
STARVED_S = 0.02
"""A local round that a processor left out for less than that is not worth a row."""


class PacedWorker(Worker, Protocol):
    """A worker whose local rounds take `factor` times as long as they would, and stand still in a pause.

    `cpu_s` is what this process got of a processor in the last local round, where that is less than half of its time
    and more than `STARVED_S` less; else None.
    """

    factor: float
    cpu_s: float | None

    def pause(self) -> None:
        """Stand still."""
        ...

    def resume(self) -> None:
        """Go on; what stood still takes as much longer."""
        ...


class SlowWorker:
    """A `PacedWorker` in real time. What a thread computes goes on in a pause: nobody reads its result."""

    def __init__(self, worker: Worker) -> None:
        """Compute by `worker`, at its own pace at first."""
        self._worker = worker
        self.factor = 1.0
        self.cpu_s: float | None = None

    async def run(self, what: str, function: Callable[..., T], *args: Any) -> T:
        """Run `function(*args)`; a local round ends only after `factor` times what it took (at least 1)."""
        began, cpu_began = time.monotonic_ns(), time.process_time()
        result = await self._worker.run(what, function, *args)
        took_s, cpu_s = (time.monotonic_ns() - began) / NS_PER_S, time.process_time() - cpu_began
        if what == "train":
            starved = cpu_s < took_s / 2 and took_s - cpu_s > STARVED_S
            self.cpu_s = self.factor * cpu_s if starved else None
            if self.factor > 1:
                await asyncio.sleep((self.factor - 1) * took_s)
        return result

    def spare(self, numel: int) -> bool:
        """Whether work on `numel` numbers is short enough to run inline."""
        return self._worker.spare(numel)

    def pause(self) -> None:
        """Nothing to do."""

    def resume(self) -> None:
        """Nothing to do."""


def make_worker(blueprint: Blueprint, hosted: int) -> ThreadWorker:
    """The worker of a process that hosts as many nodes: a thread for each while there are cores, or batches."""
    num_processes = -(-len(blueprint.node_ids) // getattr(blueprint.scenario.world, "nodes_per_process", 1))
    threads = max(1, min(hosted, cores() // num_processes))
    batching = blueprint.scenario.batching
    if blueprint.plain:
        return ThreadWorker(threads) if hosted == 1 or batching == "exact" else BatchWorker(one_by_one)
    from netdfl.training.drawing import beside_others
    from netdfl.training.service import Service

    if hosted == 1 or batching == "exact":
        return ThreadWorker(threads, None if threads == 1 else beside_others)

    return BatchWorker(Service(batching, threads).compute)
