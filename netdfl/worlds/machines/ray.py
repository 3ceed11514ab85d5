"""The machines of a Ray cluster: an actor on each starts a fork server and relays its input and output.

So it works wherever Ray does: virtual machines, Kubernetes (KubeRay), Slurm. Every machine has netdfl installed, or
gets it by Ray's runtime environments.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import ceil
from typing import IO, Any

from typing_extensions import override

from netdfl.core.errors import MachineError
from netdfl.core.installing import pip_install
from netdfl.scenario.model.world import RayOptions
from netdfl.worlds.fork_client import ENVIRONMENT, ONE_THREAD, ForkServer
from netdfl.worlds.machines.machine import Engine, Offer, shares_of

READY_S = 60.0


def make(options: RayOptions, num_nodes: int) -> Ray:
    """Return a Ray engine for `num_nodes` nodes. Raises MachineError if Ray is not installed."""
    try:
        _module("")
    except ImportError as error:
        raise MachineError(f"world ray: Ray is not installed: {pip_install('netdfl[ray]')}") from error
    return Ray(options, num_nodes)


class Ray(Engine):
    """The Ray cluster at the scenario's address or at RAY_ADDRESS; without either, a local one."""

    def __init__(self, options: RayOptions, num_nodes: int) -> None:
        """Store the options, without starting Ray."""
        self._options, self._num_nodes = options, num_nodes
        self._joined = False
        self._group: Any = None
        self._bundles: dict[str, int] = {}

    async def machines(self) -> Mapping[str, Offer]:
        """Reserve resources on each machine, and return the machines."""
        return await asyncio.to_thread(self._reserve)

    def _reserve(self) -> Mapping[str, Offer]:
        ray = _module("")

        if not ray.is_initialized():
            address = self._options.address or os.environ.get("RAY_ADDRESS")
            try:
                ray.init(address=address, log_to_driver=True, logging_level="error")
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise MachineError(f"world ray: no cluster at {address}: {error}") from error
            self._joined = True
        alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        count = max(1, min(self._options.machines or len(alive), self._num_nodes))
        share = ceil(self._num_nodes / count)
        if self._options.sites:
            return self._reserve_named(alive)
        bundle = self._bundle(share)
        fit = [node for node in alive if all(node["Resources"].get(name, 0) >= bundle[name] for name in bundle)]
        if len(fit) < count:
            has = [f"{node['NodeManagerAddress']} with {node['Resources'].get('CPU', 0):g}" for node in alive]
            raise MachineError(
                f"world ray: {count} machines are wanted with {bundle} each, and {len(fit)} have that; cores: "
                f"{', '.join(has)}. Ask for fewer machines, or for less a node (world.cpus_per_node, gpus_per_node)"
            )
        self._place([bundle] * count)
        return self._placed(count)

    def _reserve_named(self, alive: Sequence[Mapping[str, Any]]) -> Mapping[str, Offer]:
        """Reserve resources on the machines, of those `alive`, that the scenario's sites choose; return these."""
        names = _names(alive)
        offers = {name: _offer(node) for name, node in zip(names, alive, strict=True)}
        shares = shares_of(offers, self._num_nodes, self._options.sites)
        here = [{f"node:{offers[name].address}": 0.001} for name in shares]
        self._place([self._bundle(len(nodes)) | at for nodes, at in zip(shares.values(), here, strict=True)])
        self._bundles = {name: number for number, name in enumerate(shares)}
        return {name: offers[name] for name in shares}

    def _bundle(self, num_nodes: int) -> dict[str, float]:
        options = self._options
        bundle = {"CPU": max(1.0, options.cpus_per_node * num_nodes), "GPU": options.gpus_per_node * num_nodes}
        return {name: amount for name, amount in bundle.items() if amount}

    def _place(self, bundles: list[dict[str, float]]) -> None:
        self._group = _module(".util").placement_group(bundles, strategy="STRICT_SPREAD")
        if not self._group.wait(READY_S):
            raise MachineError(f"world ray: others hold what the run needs, since {READY_S:g} s; see `ray status`")

    def _placed(self, count: int) -> Mapping[str, Offer]:
        on = _module(".util").placement_group_table(self._group)["bundles_to_node_id"]
        nodes = {node["NodeID"]: node for node in _module("").nodes()}
        found = [nodes[on[number]] for number in range(count)]
        names = _names(found)
        self._bundles = {name: number for number, name in enumerate(names)}
        return {name: _offer(node) for name, node in zip(names, found, strict=True)}

    @override
    def start(self, machine: str) -> ForkServer:
        ray = _module("")
        place = _module(".util.scheduling_strategies").PlacementGroupSchedulingStrategy(
            self._group, self._bundles[machine]
        )
        bundle = self._group.bundle_specs[self._bundles[machine]]
        host = ray.remote(Host).options(
            num_cpus=1, num_gpus=bundle.get("GPU", 0), scheduling_strategy=place, max_concurrency=2
        )
        actor = host.remote()
        return ForkServer(
            RelayProcess(
                lambda data: ray.get(actor.write.remote(data)),
                lambda: bytes(ray.get(actor.read.remote())),
                lambda: ray.kill(actor),
            )
        )

    @override
    async def aclose(self) -> None:
        await asyncio.to_thread(self._leave)

    def _leave(self) -> None:
        if self._group is not None:
            _module(".util").remove_placement_group(self._group)
        if self._joined:
            _module("").shutdown()


class Host:
    """A Ray actor on a machine: starts a fork server, which ends with the actor."""

    def __init__(self) -> None:
        """Start the fork server."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "netdfl.worlds.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ENVIRONMENT | os.environ | ONE_THREAD,
        )

    def write(self, data: bytes) -> None:
        """Write `data` to the server's input; b"" closes the input."""
        assert self._process.stdin is not None
        if data:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        else:
            self._process.stdin.close()

    def read(self) -> bytes:
        """Wait for the server's next output and return it; b"" once the server has ended."""
        assert self._process.stdout is not None
        return os.read(self._process.stdout.fileno(), 1 << 16)


def _module(name: str) -> Any:
    """Import a module of Ray, which may not be installed."""
    return importlib.import_module(f"ray{name}")


def _offer(node: Mapping[str, Any]) -> Offer:
    """Return the address of a machine of the cluster, and its tags: its host name, its resources and its labels."""
    resources = (name for name in node["Resources"] if not name.startswith(("node:", "object_store")))
    labels = (f"{name}={value}" for name, value in node.get("Labels", {}).items())
    return Offer(node["NodeManagerAddress"], (node["NodeManagerHostname"], *resources, *labels))


def _names(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of machines: their host names, or their addresses where host names are not unique."""
    hosts = [str(node["NodeManagerHostname"]) for node in nodes]
    return hosts if len(set(hosts)) == len(hosts) else [str(node["NodeManagerAddress"]) for node in nodes]


class RelayProcess:
    """A process on another machine, connected by two local pipes that two threads relay."""

    def __init__(self, write: Callable[[bytes], object], read: Callable[[], bytes], kill: Callable[[], object]) -> None:
        """Relay data by `write` and `read`, which may block; b"" or an error means the end. `kill` ends the process."""
        self._kill = kill
        below, above = os.pipe(), os.pipe()
        self.stdin: IO[bytes] | None = os.fdopen(below[1], "wb")
        self.stdout: IO[bytes] | None = os.fdopen(above[0], "rb")
        down = threading.Thread(target=self._down, args=(below[0], write), daemon=True)
        self._up_thread = threading.Thread(target=self._up, args=(above[1], read), daemon=True)
        down.start()
        self._up_thread.start()

    def kill(self) -> None:
        """End the process."""
        with suppress(Exception):
            self._kill()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and kill it to be sure."""
        self._up_thread.join(timeout)
        self.kill()
        return 0

    def _down(self, pipe: int, write: Callable[[bytes], object]) -> None:
        with os.fdopen(pipe, "rb", buffering=0) as lines, suppress(Exception):
            while data := lines.read(1 << 20):
                write(data)
            write(b"")

    def _up(self, pipe: int, read: Callable[[], bytes]) -> None:
        with os.fdopen(pipe, "wb", buffering=0) as lines, suppress(Exception):
            while data := read():
                lines.write(data)
