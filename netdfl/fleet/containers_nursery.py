"""What stands between a launcher and containers as a nursery stands between it and processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from netdfl.core.errors import RunError
from netdfl.core.types import NodeId
from netdfl.fleet.containers_compose import HOME, NODE_LABEL
from netdfl.fleet.containers_docker import Docker, call
from netdfl.fleet.containers_node import COMMANDS, PLAN, command_file
from netdfl.fleet.spawn import HERE, Nursery
from netdfl.record.run import RunDirectory

IMAGE_USER = 10001
_FOLDERS = ("", COMMANDS, "store", "logs", "snapshots")
OnExit = Callable[[int, int, str | None], None]


class ContainerNursery(Nursery):
    """Starts nodes as containers; the evaluator stays a process of this machine."""

    def __init__(
        self,
        own: Nursery,
        docker: Docker,
        project: str,
        label: str,
        num_nodes: int,
        gpus: bool,
        on_restart: Callable[[NodeId], Awaitable[None]],
    ) -> None:
        """Use `own` for what is no node. `on_restart` is told of a node that somebody else started again.

        Containers have this machine's GPUs, or none, as `gpus` says.
        """
        super().__init__(own.process)
        self.own, self.docker, self.project, self.label, self.num_nodes = own, docker, project, label, num_nodes
        self.gpus, self.on_restart = gpus, on_restart
        self.ended = own.ended
        self.home = Path()
        self.names: dict[NodeId, str] = {}
        self.pids: dict[NodeId, int] = {}
        self.awaited: set[NodeId] = set()
        self.over: dict[NodeId, tuple[int, str | None]] = {}
        self.changed = asyncio.Event()
        self.starved: set[NodeId] = set()

    @property
    def file(self) -> Path:
        """The compose file."""
        return self.home / COMMANDS / "docker-compose.yaml"

    async def plan(self, plan: Mapping[str, Any], on_exit: OnExit) -> dict[str, Any]:
        """Hand over the plan and start every container. Raises InputError, MachineError."""
        self._on_exit, self.home = on_exit, Path(plan["directory"])
        inside = {**plan, "directory": HOME, "control": f"unix:{HOME}/control.sock"}
        RunDirectory(self.home / COMMANDS).write_json(PLAN, inside)
        found = await self.own.plan(plan, on_exit)
        give(self.home)
        self.awaited |= set(range(self.num_nodes))
        self._reading = asyncio.create_task(self.watch(time.time()))
        await self.docker.up(self.project, self.file)
        for container in await self.docker.containers(self.label):
            node = int(container["Config"]["Labels"][NODE_LABEL])
            self.names[node], self.pids[node] = container["Name"].lstrip("/"), container["State"]["Pid"] or -2 - node
        return found if self.gpus else found | {"gpus": 0}

    async def spawn(
        self,
        nodes: list[int],
        device: str,
        epoch: int = 0,
        *,
        place: Mapping[str, str] = HERE,
        rejoin: Mapping[str, Any] | None = None,
    ) -> int:
        """Let the container of a node begin, or the evaluator; return its process id. Raises RunError."""
        if nodes[0] < 0:
            return await self.own.spawn(nodes, device, epoch)
        (node,) = nodes
        if epoch == 0:
            return self.word(node, device, epoch, rejoin)
        await self.ended_once(node)
        self.awaited.add(node)
        await call(["docker", "start", self.names[node]])
        return await self.revive(node, device, epoch, rejoin)

    async def revive(self, node: NodeId, device: str, epoch: int, rejoin: Mapping[str, Any] | None) -> int:
        """Let a container that was started again begin; return its process id."""
        self.over.pop(node, None)
        said = await call(["docker", "inspect", "--format", "{{.State.Pid}}", self.names[node]])
        self.pids[node] = int(said) or -2 - node
        return self.word(node, device, epoch, rejoin)

    def word(self, node: NodeId, device: str, epoch: int, rejoin: Mapping[str, Any] | None) -> int:
        """Write down how a node's life begins; report it if that is over already."""
        file, pid = command_file(self.home, node), self.pids[node]
        command = {"nodes": [node], "device": device, "epoch": epoch, "rejoin": rejoin}
        RunDirectory(file.parent).write_json(file.name, command)
        if node in self.over:
            asyncio.get_running_loop().call_soon(self._on_exit, pid, *self.over[node])
        return pid

    async def ended_once(self, node: NodeId) -> None:
        """Wait until the container of `node` has ended. Raises RunError."""
        while node not in self.over:
            if self.ended.is_set():
                raise RunError("Docker tells nothing of the containers any more")
            self.changed.clear()
            await self.changed.wait()

    async def watch(self, since_s: float) -> None:
        """Follow what Docker says of the containers, to the end."""
        try:
            async for event in self.docker.events(self.label, since_s):
                await self.happened(event["Action"], event["Actor"]["Attributes"])
        finally:
            self.ended.set()
            self.changed.set()

    async def happened(self, action: str, of: Mapping[str, str]) -> None:
        """Something happened to the container of a node."""
        node = int(of[NODE_LABEL])
        if action == "oom":
            self.starved.add(node)
        elif action == "die":
            self.died(node, int(of["exitCode"]))
        elif action == "start" and node in self.awaited:
            self.awaited.discard(node)
        elif action == "start":
            await self.on_restart(node)

    def died(self, node: NodeId, code: int) -> None:
        """A container ended: nobody may take its last life's beginning for the next one's."""
        command_file(self.home, node).unlink(missing_ok=True)
        name = signal.Signals(code - 128).name if code > 128 else None
        if node in self.starved:
            name = f"{name or f'exit code {code}'}, more memory than world.memory allows"
            self.starved.discard(node)
        self.over[node] = 0 if name else code, name
        self.changed.set()
        if node in self.pids:
            self._on_exit(self.pids[node], *self.over[node])

    def close(self) -> None:
        """End what is no container."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self.own.close()


def owner() -> str:
    """Whom the containers run as: this user, but nobody in particular in place of root."""
    return f"{IMAGE_USER}:{IMAGE_USER}" if os.geteuid() == 0 else f"{os.geteuid()}:{os.getegid()}"


def give(home: Path) -> None:
    """Let the containers write into the run directory, and reach the launcher."""
    for name in _FOLDERS:
        (home / name).mkdir(exist_ok=True)
    if os.geteuid() == 0:
        for path in [*(home / name for name in _FOLDERS), home / "control.sock"]:
            os.chown(path, IMAGE_USER, IMAGE_USER)


def take_back(home: Path) -> None:
    """Own the run directory again."""
    if os.geteuid() == 0:
        for path in [home, *home.rglob("*")]:
            os.chown(path, 0, 0, follow_symlinks=False)
