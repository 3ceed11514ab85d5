"""Fleets that are attacked while they train: what netdfl's worlds run, and who comes to their ports meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.core.control import Life, Order, Peers, Stop
from netdfl.core.types import NodeId
from netdfl.running.judged import FinishedRun
from netdfl.scenario.load import loads
from netdfl.transport.security.credentials import Credentials
from netdfl.worlds.base import Figures, WorldConfig
from netdfl.worlds.catalog import WORLDS
from netdfl.worlds.processes import ProcessesWorld
from tests.hostile.client import Known

FLEET = """
schema: netdfl/1
name: attacked
nodes: 4
rounds: 30
world: {kind: processes, nodes_per_process: 2, fidelity: {relative: 100, slack: 100s}}
task: {kind: consensus, dim: 8}
algorithm: dpsgd
topology: full
links: {default: {latency: 10ms}}
"""


@dataclass(frozen=True)
class Target:
    """A fleet under attack: what everybody may know, where its nodes listen, and what only members know."""

    known: Known
    addresses: dict[int, str]
    control: str
    secret: str
    certify: Callable[[int], Credentials | None]


Coming = Callable[[Target], Awaitable[Any]]


class AttackedWorld(ProcessesWorld):
    """A world of processes to whose fleet somebody comes once it trains. It stays until they have left."""

    def __init__(self, setting: WorldConfig, come: Coming) -> None:
        super().__init__(setting)
        self.comes = come
        self.coming: asyncio.Task[Any] | None = None
        self._to_stop: list[tuple[NodeId, Stop]] = []

    def order(self, node: NodeId, order: Order) -> None:
        if isinstance(order, Peers) and self.coming is None:
            self.coming = asyncio.ensure_future(self.comes(self._target(dict(order.addresses))))
        if isinstance(order, Stop):
            self._to_stop.append((node, order))
        else:
            super().order(node, order)

    async def aclose(self, grace_s: float) -> Figures:
        if self.coming is not None:
            await asyncio.wait([self.coming])
        for node, stop in self._to_stop:
            super().order(node, stop)
        return await super().aclose(grace_s)

    def _target(self, addresses: dict[NodeId, str]) -> Target:
        plan = self.plan
        known = Known(bytes.fromhex(plan.run_id), plan.scenario_hash, len(addresses), self.scenario.rounds)

        def certify(node: int) -> Credentials | None:
            return self.certify([node], Life()).get(node)

        return Target(known, addresses, plan.control, plan.secret, certify)


def run_attacked(scenario: str, out: Path, come: Coming, monkeypatch: pytest.MonkeyPatch) -> tuple[FinishedRun, Any]:
    """Run `scenario` with who comes beside it, from its start on; return the run, and what `come` returns."""
    made: list[AttackedWorld] = []

    def make(setting: WorldConfig) -> AttackedWorld:
        made.append(AttackedWorld(setting, come))
        return made[0]

    with monkeypatch.context() as patch:
        patch.setitem(WORLDS, "processes", replace(WORLDS["processes"], make=make))
        finished = netdfl.run(loads(scenario), out=out, page=False)
    (world,) = made
    assert world.coming is not None, finished.result["reasons"]
    return finished, world.coming.result()
