"""A packet network during one run: it may die before the run ends, and at the end it tells what became of packets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from netdfl.core.errors import RunError
from netdfl.core.types import Json
from netdfl.packets.network import MOST_LATE_NS, PacketNetwork
from netdfl.record.run import RunDirectory
from netdfl.scenario.model.schema import Scenario


@dataclass(frozen=True)
class Counted:
    """What carried out the links and what it counted, and what it did not keep of them; empty: nothing was missed."""

    links: Mapping[str, object]
    missed: str = ""


class Watched:
    """A `PacketNetwork` for one run of `scenario`, on nodes whose congestion control is `tcp`."""

    def __init__(self, network: PacketNetwork, scenario: Scenario, tcp: str, directory: RunDirectory) -> None:
        """Take over `network`, which is being made; what it counts by edge goes into `directory`."""
        self.network, self._directory = network, directory
        self._emulates = bool(scenario.links)
        self._links: dict[str, object] = {"layer": scenario.world.loss_layer, "tcp": tcp}
        self._watching: asyncio.Task[None] | None = None
        self._begun = self._ending = False

    async def open(self, broke: Callable[[Exception], None]) -> None:
        """Wait until it is made; `broke` is told if it dies. Raises MachineError with what this machine lacks."""
        await asyncio.to_thread(self.network.ready)
        self._links["engine"] = self.network.engine
        self._watching = asyncio.create_task(self._watch(broke))

    async def _watch(self, broke: Callable[[Exception], None]) -> None:
        await asyncio.to_thread(self.network.wait)
        if not self._ending:
            broke(RunError("the process that carries the packets ended; its own words are above"))

    def begin(self, start_ns: int) -> None:
        """Let packets flow from `start_ns` of the monotonic clock on."""
        self.network.begin(start_ns)
        self._begun = True

    async def end(self) -> Counted:
        """Stop; what became of the packets. Raises RunError where the process is dead."""
        self._ending = True
        try:
            counts = await asyncio.to_thread(self.network.end) if self._begun else {}
        finally:
            self.network.close()
            if self._watching is not None:
                self._watching.cancel()
        if "edges" in counts:
            self._directory.write_json("packets.json", counts.pop("edges"))
        return Counted(self._links | counts, self._missed(counts))

    def close(self) -> None:
        """End the process, whatever befell the run."""
        self._ending = True
        self.network.close()

    def _missed(self, counts: Json) -> str:
        """What the emulation did not keep; empty where nothing has a rate or a delay, or all was well."""
        late_ns = counts.get("late_ns", {}).get("99", 0)
        if late_ns <= MOST_LATE_NS or not self._emulates:
            return ""
        return f"one packet in a hundred came more than {late_ns / 2e6:.0f} ms late: the machine is too busy"
