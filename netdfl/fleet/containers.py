"""The `containers` world: the processes world with a container for each node, on a network that is theirs alone.

Where links act on packets, a node's only device is a TUN that it hands to the forwarder beside the launcher; else
containers talk over a bridge of Docker's. The launcher's orders and the nodes' reports go through a socket in the
run directory, which the containers share. All that is made carries labels: who made it, and for which node.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from netdfl.core.control import ModelSaved
from netdfl.core.errors import MachineError
from netdfl.core.types import NodeId
from netdfl.fleet.containers_compose import SOCKET, Fleet, acts_on_packets, files_of, service_name, to_text
from netdfl.fleet.containers_docker import Docker, call
from netdfl.fleet.containers_image import asks_gpus, image_for
from netdfl.fleet.containers_nursery import ContainerNursery, owner, take_back
from netdfl.fleet.namespaces import NamespaceLauncher
from netdfl.fleet.processes import Outcome
from netdfl.fleet.script import fresh_round
from netdfl.packets.network import PacketNetwork
from netdfl.record.run import CHECKPOINTS
from netdfl.scenario.model.plugins import files_beside
from netdfl.training.data.dataset import data_root

LAUNCHER, RUN = "netdfl.launcher", "netdfl.run"


class Bridge:
    """The network of containers that Docker connects: nothing to do for it."""

    engine = "bridge"

    def __init__(self) -> None:
        """Be there until `close`."""
        self._closed = threading.Event()

    def ready(self) -> None:
        """Docker makes it."""

    def begin(self, start_ns: int) -> None:
        """It has no schedule."""

    def end(self) -> dict[str, Any]:
        """It counts nothing."""
        return {}

    def wait(self) -> None:
        """Return once it is closed."""
        self._closed.wait()

    def close(self) -> None:
        """Docker removes it."""
        self._closed.set()


class ContainerLauncher(NamespaceLauncher):
    """One run in the `containers` world."""

    def __init__(self, *arguments: Any) -> None:
        """As the processes world's launcher; `prepare` is what comes before."""
        super().__init__(*arguments)
        if not acts_on_packets(self.scenario):
            self.links = {"layer": self.world.loss_layer}
        self.project = f"netdfl-{secrets.token_hex(4)}"
        self.preparing: asyncio.Task[Docker] | None = None

    def make_network(self) -> PacketNetwork:
        """The forwarder of packets, where links act on them."""
        if not acts_on_packets(self.scenario):
            return cast(PacketNetwork, Bridge())
        path = f"/proc/{os.getpid()}/fd/{self.folder}/{SOCKET}"
        return PacketNetwork(self.directory.path / "scenario.yaml", self.source, socket=path)

    async def run(self) -> Outcome:
        """Find or build the image, run the fleet, remove the containers. Raises MachineError."""
        self.preparing = asyncio.create_task(self.prepare())
        try:
            docker = await self.preparing
        except asyncio.CancelledError:
            self.network.close()
            self.store.close()
            return Outcome(0.0, interrupted=True)
        except BaseException:
            self.network.close()
            raise
        nursery = ContainerNursery(
            self.nursery,
            docker,
            self.project,
            f"{RUN}={self.project}",
            self.scenario.num_nodes,
            asks_gpus(self.scenario),
            self.restarted,
        )
        self.nursery = nursery
        try:
            return await super().run()
        finally:
            with suppress(MachineError):
                await docker.down(self.project, nursery.file)
            await asyncio.to_thread(take_back, self.directory.path)

    def interrupt(self) -> None:
        """Ctrl-C: also while the image is built."""
        super().interrupt()
        if self.preparing is not None:
            self.preparing.cancel()

    async def prepare(self) -> Docker:
        """Sweep what dead launchers left, find the image, write the compose file. Raises MachineError."""
        docker = await Docker.find()
        await sweep(docker, self.note)
        image = await image_for(self.scenario, self.note)
        fleet = Fleet(
            scenario=self.scenario,
            image=image,
            shared=str(self.directory.path),
            owner=owner(),
            labels={LAUNCHER: this_launcher(), RUN: self.project},
            mounts=[path for path in self.mounts() if path.exists()],
            environment={"NETDFL_DATA": str(data_root().resolve())},
        )
        command = ["python", "-m", "netdfl.fleet.containers_node"]
        nodes = range(self.scenario.num_nodes)
        services = {service_name(node): fleet.node(node, [*command, str(node)]) for node in nodes}
        folder = self.directory.path / "containers"
        folder.mkdir()
        (folder / "docker-compose.yaml").write_text(to_text(services, fleet.networks()), encoding="utf-8")
        return docker

    def mounts(self) -> list[Path]:
        """What nodes read: the scenario's own parts, the files that it names, the datasets."""
        own = [] if self.scenario.file is None else files_beside(self.source / self.scenario.file.name)
        return [*own, *files_of(self.scenario), data_root().resolve()]

    def place(self, nodes: list[NodeId]) -> Mapping[str, str]:
        """A container has a network of its own, and finds its address there itself."""
        return {}

    def missed(self) -> str:
        """What the emulation did not keep; nothing where it emulates nothing."""
        return super().missed() if acts_on_packets(self.scenario) else ""

    def on_model(self, node: NodeId, saved: ModelSaved) -> None:
        """A model is ready; a container names it by where it sees it."""
        path = self.directory.path / "snapshots" / Path(saved.path).name
        super().on_model(node, ModelSaved(saved.round, str(path)))

    async def restarted(self, node: NodeId) -> None:
        """Somebody started the container of a dead node again: let it rejoin, where its checkpoint allows or anew."""
        if self.stopping or self.start_ns is None:
            return
        status, returns = self.status.nodes[node], self.returns
        returns.epochs[node] = epoch = returns.epochs.get(node, 0) + 1
        keep = (self.directory.path / CHECKPOINTS / f"{node:03d}.safetensors").exists()
        round = status.round
        if not keep:
            others = (other.round for number, other in self.status.nodes.items() if number != node)
            round = self.evaluation.joined[node] = fresh_round(round, others)
        rejoin = {"keep_state": keep, "round": round}
        pid = await cast(ContainerNursery, self.nursery).revive(node, self.devices[node], epoch, rejoin)
        self.pids[pid], status.pid = [node], pid
        self.note(f"node {node} was started again")


async def sweep(docker: Docker, note: Callable[[str], None]) -> None:
    """Remove the containers and networks of dead launchers of this machine, and say so. Raises MachineError."""
    listed = ["docker", "network", "ls", "--quiet", "--filter", f"label={LAUNCHER}"]
    ids = (await call(listed)).split()
    networks = json.loads(await call(["docker", "network", "inspect", *ids])) if ids else []
    containers = await docker.containers(LAUNCHER)
    left = [each["Name"].lstrip("/") for each in containers if not is_alive(each["Config"]["Labels"][LAUNCHER])]
    nets = [each["Name"] for each in networks if not is_alive(each["Labels"][LAUNCHER])]
    if left:
        await call(["docker", "rm", "--force", *left])
    if nets:
        await call(["docker", "network", "rm", *nets])
    if left or nets:
        note(f"removed what a killed run had left: {len(left)} containers, {len(nets)} networks")


def this_launcher() -> str:
    """What tells this process from any other, on this machine or elsewhere, before or after it."""
    return f"{socket.gethostname()}/{os.getpid()}/{_born(os.getpid())}"


def is_alive(launcher: str) -> bool:
    """Whether a launcher may still live: one of another machine is none of this one's business."""
    host, pid, born = launcher.rsplit("/", 2)
    return host != socket.gethostname() or _born(int(pid)) == born


def _born(pid: int) -> str:
    """When a process began, by the kernel's ticks since this boot; empty if there is none."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        return f"{ticks}@{Path('/proc/sys/kernel/random/boot_id').read_text(encoding='utf-8').strip()}"
    except OSError:
        return ""
