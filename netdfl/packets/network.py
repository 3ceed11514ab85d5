"""The client of the packet process, which creates the namespaces of one fleet and carries packets between them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from netdfl.core.errors import MachineError, RunError
from netdfl.core.process import end_child
from netdfl.core.types import Json, NodeId
from netdfl.diagnosis.fidelity import judge_packets
from netdfl.packets.tun import NamespaceAddress
from netdfl.record.directory import RunDirectory
from netdfl.scenario.model.schema import Scenario


class PacketNetwork:
    """Namespaces with a scenario's links between them, created and held by a separate process."""

    def __init__(self, scenario: Path, directory: Path, *, trusted: bool = False, socket: str = "") -> None:
        """Start to create the network for the scenario file `scenario`, which was loaded from `directory`.

        With `trusted`, the sum of the links' rates may exceed the engine's capacity, because the caller keeps the load
        within it. If `socket` is not empty, nodes create their own devices and hand them over at this path.
        """
        self.process = subprocess.Popen(
            [sys.executable, "-m", "netdfl.packets.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.engine = ""
        self.places: Mapping[NodeId, NamespaceAddress] = {}
        more = {"socket": socket} if socket else {}
        self._tell({"scenario": str(scenario), "directory": str(directory), "trusted": trusted, **more})

    def ready(self) -> None:
        """Wait until the network is created. Raises MachineError that names what this machine lacks."""
        answer = self._answer()
        if "error" in answer:
            raise MachineError(answer["error"])
        self.engine = answer["ready"]["engine"]
        self.places = {int(node): place for node, place in answer["ready"]["places"].items()}

    def begin(self, start_ns: int) -> None:
        """Let packets flow from `start_ns` of the monotonic clock on, which is time 0 of the schedule."""
        self._tell({"start_ns": start_ns})

    def end(self) -> dict[str, Any]:
        """Stop the network; return the counts of packets. Raises RunError if the process is dead."""
        self._tell({"stop": True})
        counts: dict[str, object] = self._answer()["counts"]
        return counts

    def wait(self) -> None:
        """Wait until the packet process has ended."""
        self.process.wait()

    def close(self) -> None:
        """End the packet process; its devices, and its namespaces without other processes, end with it."""
        end_child(self.process)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _tell(self, command: Json) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise RunError("the process that carries the packets ended; its own words are above") from None

    def _answer(self) -> Json:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RunError("the process that carries the packets ended; its own words are above")
        answer: Json = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        self.ready()
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class SupervisedNetwork:
    """The packet network of one run, with a task that reports if the packet process dies during the run."""

    def __init__(self, network: PacketNetwork, scenario: Scenario, tcp: str, directory: RunDirectory) -> None:
        """Take over `network`, which is being created; at the end write packet counts by edge to `directory`."""
        self.network, self._directory = network, directory
        self._emulates = bool(scenario.links) or scenario.underlay is not None
        self._links: dict[str, object] = {"layer": scenario.world.loss_layer, "tcp": tcp}
        self._watching: asyncio.Task[None] | None = None
        self._begun = self._ending = False

    async def open(self, broke: Callable[[Exception], None]) -> None:
        """Wait until the network is created; call `broke` if its process dies later. Raises MachineError."""
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

    async def end(self) -> tuple[Mapping[str, object], str]:
        """Stop the network; return the engine's counts, and a text on link rules that it failed to apply (empty: none).

        Raises RunError if the process is dead.
        """
        self._ending = True
        try:
            counts = await asyncio.to_thread(self.network.end) if self._begun else {}
        finally:
            self.network.close()
            if self._watching is not None:
                self._watching.cancel()
        if "edges" in counts:
            self._directory.write_json("packets.json", counts.pop("edges"))
        return self._links | counts, self._missed(counts)

    def close(self) -> None:
        """End the packet process, in whatever state the run is."""
        self._ending = True
        self.network.close()

    def _missed(self, counts: Json) -> str:
        """Return a text on what the emulation failed to do, judged by the engine's counts; empty if nothing."""
        return judge_packets(counts) if self._emulates else ""
