"""The `namespaces` world: local processes with a network namespace each, and links below TCP.

Messages between nodes cross the emulated network and nothing else does: orders and reports go through a socket in the
run directory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeVar

from typing_extensions import override

from netdfl.core.control import Life
from netdfl.core.types import NodeId
from netdfl.packets.network import PacketNetwork, SupervisedNetwork
from netdfl.scenario.model.world import NamespacesOptions
from netdfl.worlds.base import Figures, OpenResult, WorldConfig, WorldListener
from netdfl.worlds.processes import NodePlacement, ProcessesBasedWorld, ProcessesWorld

T = TypeVar("T")


class NamespacesWorld(ProcessesBasedWorld):
    """The world of one fleet of processes, each in a separate network namespace."""

    _packets: SupervisedNetwork

    def __init__(self, setting: WorldConfig) -> None:
        """Prepare the fleet, and start the packet process, which creates the network."""
        run, scenario = setting.directory.path, setting.scenario
        self._folder = os.open(run, os.O_PATH | os.O_CLOEXEC)
        self._socket = run / "control.sock"
        listen = f"unix:/proc/{os.getpid()}/fd/{self._folder}/control.sock"  # a socket's path may be 107 bytes long
        self._processes = ProcessesWorld(setting, listen=listen, place=self._place)
        network = PacketNetwork(run / "scenario.yaml", scenario.folder)
        assert isinstance(scenario.world, NamespacesOptions)
        self._packets = SupervisedNetwork(network, scenario, scenario.world.tcp, setting.directory)

    @override
    def run(self, course: Callable[[], Coroutine[object, object, T]], interrupt: Callable[[], None]) -> T:
        try:
            return super().run(course, interrupt)
        finally:
            self._packets.close()
            self._socket.unlink(missing_ok=True)
            os.close(self._folder)

    async def open(self, news: WorldListener) -> OpenResult:
        """Open the network, then the processes. Raises MachineError if this machine can't have such a network."""
        await self._packets.open(news.broke)
        return await self._processes.open(news)

    def _place(self, node: NodeId) -> NodePlacement:
        place = self._packets.network.places[node]
        return NodePlacement(place["namespace"], place["address"])

    def launch(self, nodes: Sequence[NodeId], life: Life) -> None:
        """Start each of `nodes` in its network namespace; `life` has the number of their restarts before."""
        self._processes.launch(nodes, life)

    async def aclose(self, grace_s: float) -> Figures:
        """Wait for the nodes to leave, then count the packets."""
        await self._processes.aclose(grace_s)
        return Figures(*await self._packets.end())
