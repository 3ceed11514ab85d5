"""The containers of one run: started by Docker Compose, sent a command for each start of a node, and watched."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from netdfl.core.control import Exit, Life
from netdfl.core.errors import RunError
from netdfl.core.types import NodeId
from netdfl.host.plan import Command, RunPlan
from netdfl.record.directory import RunDirectory
from netdfl.transport.security.credentials import Credentials
from netdfl.worlds.containers.compose import HOME, NODE_LABEL
from netdfl.worlds.containers.docker import Docker, call
from netdfl.worlds.containers.node import COMMANDS, FLEET_SECRET, PLAN, SECRET, command_file
from netdfl.worlds.forkserver import tail

IMAGE_USER = 10001
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDERS = ("", COMMANDS, "store", "logs", "snapshots")


@dataclass
class _Container:
    """The container of a node.

    Attributes:
        name: its name.
        pid: the id of its process on this machine.
        epoch: the number of the node's restarts.
        over: how the node's process in it ended; None while it runs.
        starting: whether the supervisor started the container and Docker has not reported that yet.
        by_others: whether somebody else started the container.
        starved: whether it ran out of memory.
        lived: whether the node's process has been started in it.
    """

    name: str = ""
    pid: int = 0
    epoch: int = 0
    over: Exit | None = None
    starting: bool = True
    by_others: bool = False
    starved: bool = False
    lived: bool = False


@dataclass
class Containers:
    """The containers of one run: the Compose project `project`, whose containers have the label `label`.

    `home` is the run directory. `exited` is called when the process of a node has ended, `started_again` when somebody
    other than the supervisor has started the container of a dead node.
    """

    docker: Docker
    project: str
    label: str
    home: Path
    exited: Callable[[NodeId, Exit], None]
    started_again: Callable[[NodeId], None]
    nodes: dict[NodeId, _Container] = field(default_factory=dict)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: asyncio.Task[None] | None = None

    @property
    def file(self) -> Path:
        """The path of the compose file."""
        return self.home / COMMANDS / "docker-compose.yaml"

    @property
    def _secret(self) -> Path:
        """The path of the file with the run's secret, which only the containers' user can read."""
        return self.home / COMMANDS / FLEET_SECRET

    async def start(self, plan: RunPlan, num_nodes: int) -> None:
        """Start a container for each node; it loads the run's `plan` and waits for a command. Raises MachineError."""
        RunDirectory(self.home / COMMANDS).write_json(PLAN, asdict(plan) | {"secret": ""})
        with os.fdopen(os.open(self._secret, _NEW, 0o600), "w", encoding="ascii") as file:
            file.write(plan.secret)
        give(self.home)
        self.nodes = {node: _Container() for node in range(num_nodes)}
        self._reading = asyncio.create_task(self._watch(time.time()))
        await self.docker.up(self.project, self.file)
        for found in await self.docker.containers(self.label):
            container = self.nodes[int(found["Config"]["Labels"][NODE_LABEL])]
            container.name, container.pid = found["Name"].lstrip("/"), found["State"]["Pid"]

    async def begin(self, node: NodeId, device: str, life: Life, credentials: Credentials | None) -> None:
        """Start `node` in its waiting container; if it ran there before, restart the container first.

        `life` has the number of the node's restarts. Its `credentials` go into the container's memory, and into no file
        that another container sees; `device` is its CPU or GPU.

        Raises RunError.
        """
        container = self.nodes[node]
        if life.epoch and container.lived and not container.by_others:
            await self._once_ended(container)
            container.starting = True
            await call(["docker", "start", container.name])
        if life.epoch and container.lived:
            container.over, container.by_others = None, False
            container.pid = int(await call(["docker", "inspect", "--format", "{{.State.Pid}}", container.name]))
        container.epoch, container.lived = life.epoch, True
        if credentials is not None:
            await _put(container.name, json.dumps(asdict(credentials)).encode())
        file = command_file(self.home, node)
        RunDirectory(file.parent).write_json(file.name, asdict(Command(nodes=(node,), device=device, life=life)))
        if container.over is not None:  # it ended before it was asked for
            self.exited(node, container.over)

    async def _once_ended(self, container: _Container) -> None:
        while container.over is None:
            if self.lost.is_set():
                raise RunError("Docker tells nothing of the containers any more")
            self._changed.clear()
            await self._changed.wait()

    @property
    def running(self) -> bool:
        """Whether any container is still running."""
        return any(container.over is None for container in self.nodes.values())

    async def all_ended(self) -> None:
        """Return once no container runs, or once Docker reports no more events."""
        while self.running and not self.lost.is_set():
            self._changed.clear()
            await self._changed.wait()

    async def _watch(self, since_s: float) -> None:
        """Follow Docker's events about the containers, from the time `since_s` on, until the events end."""
        try:
            async for event in self.docker.events(self.label, since_s):
                self._happened(event["Action"], event["Actor"]["Attributes"])
        finally:
            self.lost.set()
            self._changed.set()

    def _happened(self, action: str, of: Mapping[str, str]) -> None:
        node = int(of[NODE_LABEL])
        container = self.nodes[node]
        if action == "oom":
            container.starved = True
        elif action == "die":
            self._died(node, container, int(of["exitCode"]))
        elif action == "start" and container.starting:
            container.starting = False
        elif action == "start":
            container.by_others = True
            self.started_again(node)

    def _died(self, node: NodeId, container: _Container, code: int) -> None:
        """Record that the container of `node` ended with exit code `code`; delete its command, which has been run."""
        command_file(self.home, node).unlink(missing_ok=True)
        name = signal.Signals(code - 128).name if code > 128 else None
        if container.starved:
            name = f"{name or f'exit code {code}'}, more memory than world.memory allows"
            container.starved = False
        container.over = Exit(container.epoch, 0 if name else code, name, tail(self.home / "logs" / f"{node:03d}.log"))
        self._changed.set()
        self.exited(node, container.over)

    def close(self) -> None:
        """Stop following events, and delete the secret of the run."""
        self._secret.unlink(missing_ok=True)
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None


async def _put(name: str, secret: bytes) -> None:
    """Write a secret into the memory of the container `name`, through Docker's socket."""
    write = f"umask 077; cat > {SECRET}.new && mv {SECRET}.new {SECRET}"
    await call(["docker", "exec", "--interactive", f"--user={owner()}", name, "sh", "-c", write], told=secret)


def secret_place() -> str:
    """Return the Compose entry for the in-memory file system of a container, to which `_put` writes."""
    user, group = owner().split(":")
    return f"{os.path.dirname(SECRET)}:mode=0700,uid={user},gid={group}"


def owner() -> str:
    """Return the user for containers: this user, or an unprivileged one if this user is root."""
    return f"{IMAGE_USER}:{IMAGE_USER}" if os.geteuid() == 0 else f"{os.geteuid()}:{os.getegid()}"


def give(home: Path) -> None:
    """Give the containers' user access to the run directory and to the supervisor's socket."""
    for name in _FOLDERS:
        (home / name).mkdir(exist_ok=True)
    if os.geteuid() == 0:
        for path in [*(home / name for name in _FOLDERS), home / "control.sock", home / COMMANDS / FLEET_SECRET]:
            os.chown(path, IMAGE_USER, IMAGE_USER)


def take_back(home: Path) -> None:
    """Make this user the owner of the run directory again."""
    if os.geteuid() == 0:
        for path in [home, *home.rglob("*")]:
            os.chown(path, 0, 0, follow_symlinks=False)


def inside(plan: RunPlan) -> RunPlan:
    """Return a copy of the plan with the run directory and the supervisor's socket at their paths inside containers."""
    return RunPlan(**asdict(plan) | {"directory": HOME, "control": f"unix:{HOME}/control.sock"})
