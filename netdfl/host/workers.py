"""The workers that compute for the nodes of a process, on their share of the cores and at the scheduled speed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from netdfl.core.clock import NS_PER_S
from netdfl.core.process import cores
from netdfl.host.blueprint import Blueprint
from netdfl.node.worker import BatchWorker, ThreadWorker, Worker
from netdfl.training.alone import one_by_one

T = TypeVar("T")
STARVED_S = 0.02
"""A local round that had no processor for less than this many seconds is not recorded as short of a processor."""


class PacedWorker(Worker, Protocol):
    """A worker that can be paused, and whose local rounds take `factor` times their usual time.

    `cpu_s` is the processor time of the last local round in seconds if the round was short of a processor, that is, if
    it had one for less than half of its time and lacked one for over `STARVED_S` seconds; else None.
    """

    factor: float
    cpu_s: float | None

    def pause(self) -> None:
        """Pause the worker."""
        ...

    def resume(self) -> None:
        """Continue after a pause, which adds to the duration of interrupted work."""
        ...


class SlowWorker:
    """A `PacedWorker` in real time. Its threads still compute during a pause, but nobody reads a result meanwhile."""

    def __init__(self, worker: Worker) -> None:
        """Compute by `worker`, at first at that worker's own speed."""
        self._worker = worker
        self.factor = 1.0
        self.cpu_s: float | None = None

    async def run(self, what: str, function: Callable[..., T], *args: Any) -> T:
        """Run `function(*args)`; if `what` is "train", make it last `factor` times (at least 1) as long."""
        began, cpu_began = time.monotonic_ns(), time.process_time()
        result = await self._worker.run(what, function, *args)
        took_s, cpu_s = (time.monotonic_ns() - began) / NS_PER_S, time.process_time() - cpu_began
        if what == "train":
            starved = cpu_s < took_s / 2 and took_s - cpu_s > STARVED_S
            self.cpu_s = self.factor * cpu_s if starved else None
            if self.factor > 1:
                await asyncio.sleep((self.factor - 1) * took_s)
        return result

    def is_short(self, numel: int) -> bool:
        """Return whether a computation on `numel` numbers is short enough to run in the caller's thread."""
        return self._worker.is_short(numel)

    def pause(self) -> None:
        """Do nothing; threads may continue to compute."""

    def resume(self) -> None:
        """Do nothing, because threads never stopped."""


def make_worker(blueprint: Blueprint, hosted: int) -> ThreadWorker:
    """Create the worker of a process with `hosted` nodes.

    Its threads are one per node, up to the process's share of the cores; or it computes nodes that train at the same
    time in batches.
    """
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
