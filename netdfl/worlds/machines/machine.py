"""The supervisor's view of another machine: its nodes, its fork server, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from netdfl.core.control import LOST, Exit, Life
from netdfl.core.errors import MachineError, NetdflError, RunError
from netdfl.core.types import NodeId
from netdfl.core.versions import Versions, objection, taken
from netdfl.host.plan import Command, RunPlan, spread
from netdfl.scenario.model.world import Site
from netdfl.transport.security.credentials import Credentials
from netdfl.worlds.fork_client import ForkServer
from netdfl.worlds.machines.lifeline import Lifeline, Lifelines


class Offer(NamedTuple):
    """A machine that an engine offers: the address for its nodes, and tags by which a scenario's site can choose it."""

    address: str
    tags: Collection[str] = ()


class Engine(Protocol):
    """A provider of machines, such as Slurm or Ray.

    A new one implements this, and gets a row in the catalog of worlds.
    """

    async def machines(self) -> Mapping[str, Offer]:
        """Return the available machines by name. Raises MachineError."""

    def start(self, machine: str) -> ForkServer:
        """Start a fork server on `machine`; if it ends before its first answer, the start has failed."""

    async def aclose(self) -> None:
        """Release all machines."""


def before_port(address: str) -> str:
    """Return `address` in the form that `:port` can follow: IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address


class Machine:
    """The supervisor's view of one machine, which runs a share of the fleet's nodes."""

    def __init__(self, name: str, address: str, nodes: Sequence[NodeId]) -> None:
        """Describe the machine at `address` that will run `nodes`, without starting anything on it."""
        self.name, self.address, self.nodes = name, address, tuple(nodes)
        self.devices: dict[NodeId, str] = {}
        self._forks: ForkServer | None = None
        self._line: Lifeline | None = None

    @property
    def is_there(self) -> bool:
        """Whether nodes can be started on this machine now."""
        return bool(self.devices) and self._forks is not None and not self._forks.ended.is_set()

    @property
    def gone(self) -> str:
        """The sentence that reports the loss of this machine."""
        return f"machine {self.name} is gone"

    def start(self, engine: Engine) -> None:
        """Have the engine start a fork server on this machine."""
        self._forks = engine.start(self.name)

    async def start_anew(self, engine: Engine) -> None:
        """Start a new fork server on this machine through `engine`, the provider of machines, such as Slurm or Ray.

        The old fork server is abandoned. `engine.start` runs in a thread, so that the supervisor's event loop is not
        blocked while the engine waits for the machine.
        """
        if self._forks is not None:
            self._forks.abandon()
        if self._line is not None:
            self._line.close()
        self.devices, self._line = {}, None
        self._forks = await asyncio.to_thread(engine.start, self.name)

    async def hold(self, lines: Lifelines, host: str, port: int) -> None:
        """Make the machine open a lifeline to `lines` at `host` and `port`: a connection that ends if the machine does.

        Raises MachineError, with the machine's name, if it can't connect, or RunError.
        """
        assert self._forks is not None
        line = lines.expect(self._forks.abandon)
        try:
            await self._forks.hold(host, port, line.token)
        except NetdflError as error:
            raise type(error)(f"machine {self.name}: {error}") from error
        self._line = line

    async def look(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the machine's fork server a question about the machine; return the answer.

        Raises RunError that names the machine.
        """
        assert self._forks is not None
        try:
            return await self._forks.look(question)
        except RunError as error:
            raise RunError(f"machine {self.name}: {error}") from error

    async def find_address(self, network: str) -> None:
        """Set the address for nodes to the machine's address in `network`, an interface or a range like 10.0.0.0/8.

        Raises MachineError without an address there.
        """
        found = await self.look({"network": network})
        if not found["address"]:
            has = ", ".join(f"{name} {address}" for name, address in found["has"].items())
            raise MachineError(
                f"machine {self.name} has no address in world.network {network!r}; it has {has or 'none'}"
            )
        self.address = found["address"]

    async def check_versions(self, ours: Versions, *, trains: bool) -> None:
        """Raise MachineError if package versions on the machine would lead to different results than `ours`.

        `trains`: nodes train with torch, so that its version counts, too.
        """
        theirs = (await self.look({"versions": {"trains": trains}})).get("versions", {})
        if reason := objection(f"machine {self.name}", taken(theirs), "the supervisor", ours):
            raise MachineError(reason)

    def stop(self, pid: int) -> None:
        """Kill the process `pid` on the machine."""
        if self._forks is not None:
            self._forks.kill(pid)

    async def settle(self, plan: RunPlan, device: str, exited: Callable[[NodeId, Exit], None]) -> None:
        """Make the fork server load the run's plan, and give the machine's nodes their CPU or GPUs by `device`.

        `exited` is called for every node whose process ends. Raises NetdflError, which names the machine, if it is
        unavailable or lacks something.
        """
        assert self._forks is not None
        try:
            loaded = await self._forks.plan(plan, exited)
            self.devices = dict(zip(self.nodes, spread(device, loaded.gpus, len(self.nodes)), strict=True))
        except NetdflError as error:
            raise type(error)(f"machine {self.name}: {error}") from error

    async def give(self, checkpoints: Callable[[NodeId], Path]) -> None:
        """Send the machine the last checkpoints of its nodes, the files in `checkpoints`. Raises RunError."""
        assert self._forks is not None
        for node in self.nodes:
            if checkpoints(node).exists():
                await self._forks.give(node, checkpoints(node))

    async def spawn(self, nodes: Sequence[NodeId], life: Life, credentials: Mapping[NodeId, Credentials]) -> None:
        """Start a process for `nodes`, with their `credentials`; `life` has the number of their restarts.

        Raises RunError if the machine is gone.
        """
        if self._forks is None or not self.is_there:
            raise RunError(self.gone)
        command = Command(
            nodes=tuple(nodes),
            device=self.devices[nodes[0]],
            life=life,
            address=before_port(self.address),
            credentials=credentials,
        )
        await self._forks.spawn(command)

    async def lost(self) -> tuple[str, list[tuple[NodeId, Exit]]]:
        """Wait until the machine is gone; return how this was noticed, and the nodes that ended with it.

        An engine's report does not count by itself: it may have given up a machine that is only slow.
        """
        assert self._forks is not None
        assert self._line is not None
        await self._forks.ended.wait()
        self._line.let_go()
        await self._line.ended.wait()
        left = self._forks.processes.values()
        return self._line.why, [
            (node, Exit(each.life.epoch, LOST, lost=self.gone)) for each in left for node in each.nodes
        ]

    async def aclose(self, grace_s: float) -> None:
        """Wait up to `grace_s` seconds for its processes to end, then end the fork server and remaining processes."""
        if self._forks is not None:
            await self._forks.left_alone(grace_s)
            if self._line is not None:
                self._line.expect_end()
            await self._forks.aclose()
        if self._line is not None:
            self._line.close()


def shares_of(offers: Mapping[str, Offer], num_nodes: int, sites: Sequence[Site] = ()) -> dict[str, list[NodeId]]:
    """Return the nodes of each machine that gets any.

    The nodes of a site of the scenario are spread over the site's machines. All other nodes are spread over the
    machines that no site uses, or over all machines if there are no such. Each machine gets consecutive ids; where the
    numbers don't divide, the first ones get one node more. Raises MachineError.
    """
    if not offers:
        raise MachineError("no machine to place nodes on")
    shares: dict[str, list[NodeId]] = {name: [] for name in offers}
    placed: set[NodeId] = set()
    for site in sites:
        _share(shares, _machines_of(site, offers), [node for node in site.nodes if node not in placed])
        placed.update(site.nodes)
    if beyond := sorted(node for node in placed if node >= num_nodes):
        raise MachineError(f"world.sites: node {beyond[0]} is none of this fleet, which has 0 to {num_nodes - 1}")
    free = [name for name in offers if not shares[name]] or list(offers)
    _share(shares, free, [node for node in range(num_nodes) if node not in placed])
    return {name: sorted(nodes) for name, nodes in shares.items() if nodes}


def _machines_of(site: Site, offers: Mapping[str, Offer]) -> list[str]:
    found = [name for name, each in offers.items() if site.machines in (name, each.address, *each.tags)]
    if not found:
        known = "; ".join(f"{name}: {', '.join([each.address, *each.tags])}" for name, each in offers.items())
        raise MachineError(f"world.sites: no machine is, or has, {site.machines!r}; there are {known}")
    return found


def _share(shares: Mapping[str, list[NodeId]], machines: Sequence[str], nodes: Sequence[NodeId]) -> None:
    count = min(len(machines), len(nodes))
    starts = [-(-number * len(nodes) // count) for number in range(count + 1)] if count else []
    for name, (begin, end) in zip(machines, pairwise(starts), strict=False):
        shares[name].extend(nodes[begin:end])
