"""The `containers` world: a container for each node, on a network of their own.

Where links act on packets, a node's only device is a TUN that it hands to the forwarder beside the supervisor; else
containers talk over a bridge of Docker's. Orders and reports go through a socket in the run directory, which the
containers share. Everything that is made carries labels with its supervisor and its node.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from netdfl.core.control import EVALUATOR, Hello, Life, Report
from netdfl.core.errors import MachineError
from netdfl.core.noticed import noticed_timeout
from netdfl.core.types import NodeId
from netdfl.packets.network import PacketNetwork, SupervisedNetwork
from netdfl.record.directory import CHECKPOINTS
from netdfl.scenario.loading.sources import modules_of, named_files
from netdfl.scenario.model.plugins import files_beside
from netdfl.scenario.model.world import ContainersOptions
from netdfl.training.data.dataset import data_root
from netdfl.worlds.base import BackgroundTasks, Figures, OpenResult, WorldConfig, WorldListener
from netdfl.worlds.containers.compose import SOCKET, Fleet, acts_on_packets, service_name, to_blocks
from netdfl.worlds.containers.docker import Docker, call
from netdfl.worlds.containers.engine import Containers, inside, owner, secret_place, take_back
from netdfl.worlds.containers.image import asks_gpus, image_for
from netdfl.worlds.processes import ProcessesBasedWorld, ProcessesWorld

T = TypeVar("T")
SUPERVISOR, RUN = "netdfl.launcher", "netdfl.run"


class ContainersWorld(ProcessesBasedWorld):
    """The world of one fleet of containers; the evaluator, which judges models, is a process on this machine."""

    def __init__(self, setting: WorldConfig) -> None:
        """Prepare the fleet by the settings. If link rules act on packets, start the forwarder of packets."""
        self._setting, self._scenario, self._home = setting, setting.scenario, setting.directory.path
        self._folder = os.open(self._home, os.O_PATH | os.O_CLOEXEC)
        here = f"/proc/{os.getpid()}/fd/{self._folder}"  # a socket's path may be 107 bytes long
        gpus = asks_gpus(setting.scenario)
        self._processes = ProcessesWorld(setting, listen=f"unix:{here}/control.sock", gpus=gpus, elsewhere=True)
        self._source = self._scenario.folder
        if acts_on_packets(self._scenario):
            network = PacketNetwork(self._home / "scenario.yaml", self._source, socket=f"{here}/{SOCKET}")
            assert isinstance(self._scenario.world, ContainersOptions)
            self._packets = SupervisedNetwork(network, self._scenario, self._scenario.world.tcp, setting.directory)
        self._project = f"netdfl-{secrets.token_hex(4)}"
        self._containers: Containers | None = None
        self._beside = BackgroundTasks(lambda error: self.broke(error))

    @override
    def run(self, course: Callable[[], Coroutine[Any, Any, T]], interrupt: Callable[[], None]) -> T:
        try:
            return super().run(course, interrupt)
        finally:
            if self._packets is not None:
                self._packets.close()
            for name in ("control.sock", SOCKET):
                (self._home / name).unlink(missing_ok=True)
            os.close(self._folder)

    # the course of a run

    async def open(self, news: WorldListener) -> OpenResult:
        """Find or build the image, and start the containers. Raises MachineError."""
        self._news, self.exited, self.came_back = news, news.exited, news.came_back
        self.refused, self.broke = news.refused, news.broke
        docker = await self._prepare()
        if self._packets is not None:
            await self._packets.open(news.broke)
        found = await self._processes.open(self)
        label = f"{RUN}={self._project}"
        self._containers = Containers(docker, self._project, label, self._home, news.exited, self._started_again)
        await self._containers.start(inside(self._processes.plan), self._scenario.num_nodes)
        return found

    async def _prepare(self) -> Docker:
        """Remove leftovers of dead supervisors, find the image, and write the compose file. Raises MachineError."""
        assert isinstance(self._scenario.world, ContainersOptions)
        docker = await Docker.find()
        await sweep(docker, self._setting.note)
        image = await image_for(self._scenario, self._setting.note)
        fleet = Fleet(
            scenario=self._scenario,
            image=image,
            shared=str(self._home),
            owner=owner(),
            labels={SUPERVISOR: this_supervisor(), RUN: self._project},
            mounts=[path for path in self._mounts() if path.exists()],
            environment={"NETDFL_DATA": str(data_root().resolve())},
        )
        command = ["python", "-m", "netdfl.worlds.containers.node"]
        nodes = range(self._scenario.num_nodes)
        memory = {"tmpfs": [secret_place()]} if self._scenario.world.tls else {}
        services = {service_name(node): fleet.node(node, [*command, str(node)]) | memory for node in nodes}
        folder = self._home / "containers"
        folder.mkdir()
        text = to_blocks([{"services": services, **fleet.networks()}])
        (folder / "docker-compose.yaml").write_text(text, encoding="utf-8")
        return docker

    def _mounts(self) -> list[Path]:
        """Return the host's paths that containers may read: the user's modules, files in the scenario, datasets."""
        beside = files_beside(str(self._source)) if modules_of(self._scenario) else []
        modules = [file for file in modules_of(self._scenario).values() if not {file, *file.parents} & {*beside}]
        return [*beside, *modules, *named_files(self._scenario), data_root().resolve()]

    def launch(self, nodes: Sequence[NodeId], life: Life) -> None:
        """Start each of `nodes` in its container; `life` has the number of their restarts before."""
        for node in nodes:
            self._beside.do(self._launch(node, life))

    async def _launch(self, node: NodeId, life: Life) -> None:
        assert self._containers is not None
        proof = self._processes.certify([node], life)
        await self._containers.begin(node, self._processes.devices[node], life, proof.get(node))

    async def aclose(self, grace_s: float) -> Figures:
        """Wait for the nodes to leave, remove the containers, and count the packets."""
        containers = self._containers
        if containers is not None:
            with suppress(TimeoutError):
                async with noticed_timeout(grace_s):
                    await containers.all_ended()
            containers.close()
        figures = await self._processes.aclose(grace_s)
        if self._packets is None:
            figures = replace(figures, links={**figures.links, "engine": "bridge"})
        try:
            if self._packets is not None:
                figures = Figures(*await self._packets.end())
        finally:
            if containers is not None:
                with suppress(MachineError):
                    await containers.docker.down(containers.label)
            await asyncio.to_thread(take_back, self._home)
        return figures

    # what is heard of containers and of this machine's processes

    def _started_again(self, node: NodeId) -> None:
        """Report that somebody else restarted a node's container; the node's checkpoint is in the run directory."""
        keeps = (self._home / CHECKPOINTS / f"{node:03d}.safetensors").exists()
        self._news.came_back(node, keeps)

    def report(self, node: NodeId, report: Report) -> None:
        """Pass a report on, with the process id on this machine, because a container sees a different one."""
        if isinstance(report, Hello) and node != EVALUATOR and self._containers is not None:
            report = replace(report, pid=self._containers.nodes[node].pid)
        self._news.report(node, report)


async def sweep(docker: Docker, note: Callable[[str], None]) -> None:
    """Remove containers and networks of dead supervisors of this machine, and report this by `note`.

    If that fails, the error is reported likewise: a run of somebody else may remove the same. Raises MachineError if
    Docker does not list them.
    """
    networks, containers = await docker.networks(SUPERVISOR), await docker.containers(SUPERVISOR)
    left = [each["Name"].lstrip("/") for each in containers if not is_alive(each["Config"]["Labels"][SUPERVISOR])]
    nets = [each["Name"] for each in networks if not is_alive(each["Labels"][SUPERVISOR])]
    try:
        if left:
            await call(["docker", "rm", "--force", *left])
        if nets:
            await call(["docker", "network", "rm", *nets])
    except MachineError as error:
        note(f"what a killed run had left could not all be removed: {error}")
        return
    if left or nets:
        note(f"removed what a killed run had left: {len(left)} containers, {len(nets)} networks")


def this_supervisor() -> str:
    """Return a name for this process that is unique across machines and time."""
    return f"{socket.gethostname()}/{os.getpid()}/{_born(os.getpid())}"


def is_alive(supervisor: str) -> bool:
    """Return whether the supervisor process of this name may be alive; one on another machine counts as alive."""
    host, pid, born = supervisor.rsplit("/", 2)
    return host != socket.gethostname() or _born(int(pid)) == born


def _born(pid: int) -> str:
    """Return the start time of a process in kernel ticks, with the boot's id; empty if there is no such process."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        return f"{ticks}@{Path('/proc/sys/kernel/random/boot_id').read_text(encoding='utf-8').strip()}"
    except OSError:
        return ""
