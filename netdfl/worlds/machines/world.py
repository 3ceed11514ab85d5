"""A world of many machines, each with a fork server that an engine started, and a share of the nodes.

The machines share neither a disk nor a clock with the supervisor, or with each other: files that nodes need are sent
along, files that they write travel back over the control plane. Nodes reach each other directly.
"""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from netdfl.core.clock import NS_PER_S
from netdfl.core.control import LOST, Exit, Life
from netdfl.core.errors import InputError, MachineError, NetdflError, RunError
from netdfl.core.types import NodeId
from netdfl.core.versions import versions_here
from netdfl.host.blueprint import needs_torch
from netdfl.host.plan import RunPlan, pack
from netdfl.record.directory import CHECKPOINTS
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import MachinesOptions
from netdfl.worlds.base import BackgroundTasks, Figures, OpenResult, WorldConfig, WorldListener
from netdfl.worlds.machines.lifeline import Lifelines
from netdfl.worlds.machines.machine import Engine, Machine, before_port, shares_of
from netdfl.worlds.machines.network import ClockFirstListener, Network, measure
from netdfl.worlds.processes import ProcessesBasedWorld, ProcessesWorld

RETRY_S = 2.0
MOST_BYTES = 32 << 20


class MachinesWorld(ProcessesBasedWorld):
    """The world of one fleet on machines of an engine (Slurm, Ray); only the evaluator runs beside the supervisor."""

    def __init__(self, setting: WorldConfig, engine: Engine) -> None:
        """Store the settings; ask nothing yet of `engine`, which will provide the machines."""
        assert isinstance(setting.scenario.world, MachinesOptions)
        self._setting, self._scenario, self._options = setting, setting.scenario, setting.scenario.world
        everywhere = "[::]" if socket.has_dualstack_ipv6() else "0.0.0.0"
        self._processes = ProcessesWorld(setting, listen=everywhere, elsewhere=True)
        self._engine = engine
        self._machines: list[Machine] = []
        self._lines = Lifelines(self._options.gone_after)
        self._network: Network = {}
        self._refusal: NetdflError | None = None
        self._trains = needs_torch(setting.scenario)
        self._beside = BackgroundTasks(lambda error: self._news.broke(error))

    async def open(self, news: WorldListener) -> OpenResult:
        """Start a fork server on every machine. Raises MachineError if one is unavailable."""
        self._news = news
        offers = await self._engine.machines()
        self._port = await self._lines.start()
        self._luggage = packed(self._scenario)
        shares = shares_of(offers, self._scenario.num_nodes, self._options.sites)
        self._machines = [Machine(name, offers[name].address, nodes) for name, nodes in shares.items()]
        for machine in self._machines:
            machine.start(self._engine)
        found = await self._processes.open(ClockFirstListener(news))
        await asyncio.gather(*map(self._settle, self._machines))
        self._network = await measure(self._machines)
        self._check_network()
        return found

    def _check_network(self) -> None:
        """Raise MachineError if some machines can't reach each other."""
        trips = [(way, told.get("round_trip_s")) for way, told in self._network.items()]
        apart = [(way, why) for way, why in trips if isinstance(why, str)]
        if apart:
            (src, dst), why = apart[0]
            more = f" (and {len(apart) - 1} more ways)" if apart[1:] else ""
            raise MachineError(
                f"machine {src} does not reach machine {dst}: {why}{more}; nodes listen at ports that the system gives "
                "them: open these between the machines, or name another network (world.network)"
            )

    async def _settle(self, machine: Machine) -> None:
        await machine.check_versions(versions_here(trains=self._trains), trains=self._trains)
        if self._options.network:
            await machine.find_address(self._options.network)
        await machine.hold(self._lines, address_towards(machine.address), self._port)
        await machine.settle(self._plan_for(machine), self._scenario.device, self._news.exited)
        await machine.give(self._checkpoint)
        self._beside.do(self._watch(machine))

    def _checkpoint(self, node: NodeId) -> Path:
        return self._setting.directory.path / CHECKPOINTS / f"{node:03d}.safetensors"

    def _plan_for(self, machine: Machine) -> RunPlan:
        plan = self._processes.plan
        port = plan.control.rpartition(":")[2]
        return replace(
            plan,
            directory="",
            scenario_directory="",
            control=f"{before_port(address_towards(machine.address))}:{port}",
            shares_disk=False,
            shares_clock=False,
            share_memory=machine.nodes,
            luggage=self._luggage,
        )

    def launch(self, nodes: Sequence[NodeId], life: Life) -> None:
        """Start each of `nodes` on its machine; `life` has the number of their restarts before."""
        for machine in self._machines:
            here = [node for node in machine.nodes if node in nodes]
            size = self._options.nodes_per_process
            self._beside.do(self._spawn(machine, [here[i : i + size] for i in range(0, len(here), size)], life))

    async def _spawn(self, machine: Machine, groups: Sequence[Sequence[NodeId]], life: Life) -> None:
        for nodes in groups:
            try:
                await machine.spawn(nodes, life, self._processes.certify(nodes, life))
            except RunError:
                for node in nodes:
                    self._lose(node, Exit(life.epoch, LOST, lost=machine.gone))

    async def aclose(self, grace_s: float) -> Figures:
        """End all processes, the fork servers and the engine; return the world's final report."""
        self._beside.cancel()
        async with asyncio.TaskGroup() as ending:
            for machine in self._machines:
                ending.create_task(machine.aclose(grace_s))
        self._lines.close()
        figures = await self._processes.aclose(grace_s)
        await self._engine.aclose()
        where = {machine.name: list(machine.nodes) for machine in self._machines}
        network = [{"src": src, "dst": dst, **told} for (src, dst), told in sorted(self._network.items())]
        return replace(figures, links={**figures.links, "machines": where, "network": network})

    # machines that go, and come back

    async def _watch(self, machine: Machine) -> None:
        how_known, gone = await machine.lost()
        nodes = ", ".join(f"node {node}" for node, _ in gone) or "no node"
        self._setting.note(f"machine {machine.name} is gone, and {nodes} with it: {how_known}")
        for node, how in gone:
            self._lose(node, how)
        if self._options.rejoin and gone:
            self._beside.do(self._await(machine, [node for node, _ in gone]))

    def _lose(self, node: NodeId, how: Exit) -> None:
        self._processes.dismiss(node, how.epoch)
        within_ns = self._options.rejoin_within if self._options.rejoin else None
        self._news.exited(node, replace(how, within_ns=within_ns))

    async def _await(self, machine: Machine, lost: Sequence[NodeId]) -> None:
        """Retry until the machine is available again, then report that its `lost` nodes can be restarted.

        After the scenario's time limit, give up.
        """
        try:
            async with asyncio.timeout(self._options.rejoin_within / NS_PER_S):
                await self._have_again(machine)
        except TimeoutError:
            self._setting.note(f"machine {machine.name} did not come back and is tried no more: {self._refusal}")
            return
        self._setting.note(f"machine {machine.name} is back")
        for node in lost:
            self._news.came_back(node, keeps=self._checkpoint(node).exists())

    async def _have_again(self, machine: Machine) -> None:
        while True:
            await asyncio.sleep(RETRY_S)
            try:
                async with asyncio.timeout(self._options.start_timeout / NS_PER_S):
                    await machine.start_anew(self._engine)
                    await self._settle(machine)
                return
            except TimeoutError:
                self._refusal = MachineError(f"machine {machine.name} was asked, and did not answer in time")
            except NetdflError as error:
                self._refusal = error


def packed(scenario: Scenario) -> dict[str, str]:
    """Return the scenario's files that the machines need, by name, in base64.

    Raises InputError if they exceed `MOST_BYTES` together.
    """
    files = pack(scenario)
    size = sum(map(len, files.values()))
    if size > MOST_BYTES:
        largest = max(files, key=lambda name: len(files[name]))
        raise InputError(
            f"files that machines need: expected at most {MOST_BYTES >> 20} MiB in all, got {size >> 20} MiB, most of "
            f"it {largest}; have them found on each machine as datasets are, under NETDFL_DATA"
        )
    return {name: b64encode(content).decode() for name, content in files.items()}


def address_towards(other: str) -> str:
    """Return this machine's address on the route to `other`. Raises MachineError if there is no route."""
    with socket.socket(socket.AF_INET6 if ":" in other else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((other, 9))  # nothing is sent
        except OSError as error:
            raise MachineError(f"no way from here to {other}: {error.strerror}") from error
        return str(probe.getsockname()[0])
