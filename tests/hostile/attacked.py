"""Fleets that are attacked while they train, in any world with real nodes: who comes to their ports meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import netdfl
from netdfl.core.control import Life, Order, Peers, Stop
from netdfl.core.types import NodeId
from netdfl.running.judged import FinishedRun
from netdfl.scenario.load import loads
from netdfl.scenario.model.schema import Scenario
from netdfl.transport.security.credentials import Credentials
from netdfl.worlds.base import Figures, WorldConfig
from netdfl.worlds.catalog import WorldEntry, entry_of
from netdfl.worlds.processes import ProcessesWorld
from tests.hostile.client import Known

MAKERS = ("processes", "namespaces", "containers.world", "machines.world")
"""The modules that make a `ProcessesWorld`: every world with real nodes has one, which knows the fleet's secret."""


@dataclass(frozen=True)
class Target:
    """A fleet under attack: what everybody may know, where its nodes listen, and what only members know."""

    known: Known
    addresses: dict[int, str]
    control: str
    secret: str
    certify: Callable[[int], Credentials | None]
    run: Path
    over: asyncio.Event
    """Set once the fleet has all its rounds behind it, or has failed."""


Coming = Callable[[Target], Awaitable[Any]]


class AttackedWorld:
    """A world to whose fleet somebody comes once its nodes know each other. It stays until they have left."""

    def __init__(self, world: Any, processes: ProcessesWorld, come: Coming) -> None:
        self.world, self.processes, self.comes = world, processes, come
        self.coming: asyncio.Task[Any] | None = None
        self.over = asyncio.Event()
        self._to_stop: list[tuple[NodeId, Stop]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def order(self, node: NodeId, order: Order) -> None:
        if isinstance(order, Peers) and self.coming is None:
            self.coming = asyncio.ensure_future(self.comes(self._target(dict(order.addresses))))
        if isinstance(order, Stop):
            self._to_stop.append((node, order))
        else:
            self.world.order(node, order)

    async def aclose(self, grace_s: float) -> Figures:
        self.over.set()
        if self.coming is not None:
            await asyncio.wait([self.coming])
        for node, stop in self._to_stop:
            self.world.order(node, stop)
        figures: Figures = await self.world.aclose(grace_s)
        return figures

    def _target(self, addresses: dict[NodeId, str]) -> Target:
        of, plan = self.processes, self.processes.plan
        known = Known(bytes.fromhex(plan.run_id), plan.scenario_hash, len(addresses), of.scenario.rounds)

        def certify(node: int) -> Credentials | None:
            return of.certify([node], Life()).get(node)

        return Target(known, addresses, plan.control, plan.secret, certify, of.directory.path, self.over)


def run_attacked(text: str, out: Path, come: Coming, on: str | None = None) -> tuple[FinishedRun, Any]:
    """Run a scenario with who comes beside it, from its start on; return the run, and what `come` returns."""
    made: list[AttackedWorld] = []
    told: list[ProcessesWorld] = []

    class Told(ProcessesWorld):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            told.append(self)

    def entry(scenario: Scenario) -> WorldEntry:
        found = entry_of(scenario)

        def make(setting: WorldConfig) -> Any:
            world = found.make(setting)
            made.append(AttackedWorld(world, told[-1], come))
            return made[-1]

        return replace(found, make=make)

    with ExitStack() as patches:
        for module in MAKERS:
            patches.enter_context(mock.patch(f"netdfl.worlds.{module}.ProcessesWorld", Told))
        patches.enter_context(mock.patch("netdfl.running.supervise.entry_of", entry))
        finished = netdfl.run(loads(text, on=on), out=out, page=False)
    (world,) = made
    assert world.coming is not None, finished.result["reasons"]
    return finished, world.coming.result()
