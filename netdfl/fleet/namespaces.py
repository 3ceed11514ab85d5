"""The `namespaces` world: the processes world with a network namespace per node, and links below TCP.

Messages between nodes cross the emulated network and nothing else does: the launcher's orders and the
nodes' reports go through a socket in the run directory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from netdfl.core.errors import NetdflError
from netdfl.core.types import NodeId
from netdfl.fleet.processes import Launcher, Outcome
from netdfl.packets.network import MOST_LATE_NS, PacketNetwork
from netdfl.transport.control import ControlServer


class NamespaceLauncher(Launcher):
    """One run in the `namespaces` world."""

    def __init__(self, *arguments: Any) -> None:
        """As the processes world's launcher; the packet process begins to make the network at once."""
        super().__init__(*arguments)
        run = self.directory.path
        self.folder = os.open(run, os.O_PATH | os.O_CLOEXEC)
        socket = f"unix:/proc/{os.getpid()}/fd/{self.folder}/control.sock"  # a socket's path may be 107 bytes long
        self.control = ControlServer(self.token, self.on_report, self.on_lost, socket)
        self.source = self.scenario.file.parent if self.scenario.file else Path.cwd()
        self.network = self.make_network()
        self.links: dict[str, Any] = {"layer": self.world.loss_layer, "tcp": self.world.tcp}

    def make_network(self) -> PacketNetwork:
        """The process that makes the namespaces and carries the packets."""
        return PacketNetwork(self.directory.path / "scenario.yaml", self.source)

    @property
    def world(self) -> Any:
        """The world's own options."""
        return self.scenario.world

    async def run(self) -> Outcome:
        """Run the fleet over the network. Raises MachineError where this machine can't have one."""
        watching = None
        try:
            await asyncio.to_thread(self.network.ready)
            self.links["engine"] = self.network.engine
            watching = asyncio.create_task(self.watch())
            outcome = await super().run()
        finally:
            self.network.close()
            if watching is not None:
                watching.cancel()
            (self.directory.path / "control.sock").unlink(missing_ok=True)
            os.close(self.folder)
        return replace(outcome, links=self.links, fidelity_missed=self.missed())

    async def watch(self) -> None:
        """Break the run where the packet process ends before it."""
        await asyncio.to_thread(self.network.wait)
        if not self.stopping:
            self.broke = self.broke or "the process that carries the packets ended; its own words are above"
            self.changed.set()

    def processes(self) -> list[list[NodeId]]:
        """A process for each node, as each has a network of its own."""
        return [[node] for node in range(self.scenario.num_nodes)]

    def place(self, nodes: list[NodeId]) -> Mapping[str, str]:
        """The namespace and the address of a node."""
        place = self.network.places[nodes[0]]
        return {"namespace": place["namespace"], "address": place["address"]}

    def begin(self) -> None:
        """Let packets flow, and the nodes begin, from the common start on."""
        super().begin()
        assert self.start_ns is not None
        self.network.begin(self.start_ns)

    async def stop(self, grace_s: float) -> None:
        """Let the nodes leave, then count the packets."""
        await super().stop(grace_s)
        try:
            counts = await asyncio.to_thread(self.network.end) if self.start_ns is not None else {}
        except NetdflError as error:
            self.broke = self.broke or str(error)
        else:
            if "edges" in counts:
                self.directory.write_json("packets.json", counts.pop("edges"))
            self.links |= counts

    def missed(self) -> str:
        """What the emulation did not keep; empty where nothing has a rate or a delay, or all was well."""
        late_ns = self.links.get("late_ns", {}).get("99", 0)
        if late_ns <= MOST_LATE_NS or not self.scenario.links:
            return ""
        return f"one packet in a hundred came more than {late_ns / 2e6:.0f} ms late: the machine is too busy"
