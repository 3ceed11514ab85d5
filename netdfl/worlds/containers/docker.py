"""Docker by its command line: commands, events, and an error of one line about anything that is missing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdfl.core.errors import MachineError
from netdfl.core.types import Json

REMEDY = "or run it --on namespaces or --on processes"
_ANSWER_S = 120
"""Seconds to wait for an answer of Docker: on a busy machine it may be slow. An engine that is down refuses at once."""


@dataclass(frozen=True)
class Docker:
    """The Docker engine of this machine; `compose` is the command of Docker Compose, of version 1 or 2."""

    compose: Sequence[str]

    @classmethod
    async def find(cls) -> Docker:
        """Find the Docker commands and a running engine. Raises MachineError that names the missing part."""
        if shutil.which("docker") is None:
            raise MachineError(
                f"containers need Docker, and there is no command docker here: install Docker and its Compose "
                f"(on Debian: apt-get install docker.io docker-compose), {REMEDY}"
            )
        try:
            async with asyncio.timeout(_ANSWER_S):
                await call(["docker", "version", "--format", "{{.Server.Version}}"])
        except (MachineError, TimeoutError) as error:
            raise MachineError(
                f"containers need a Docker engine, and none answers here ({str(error) or 'no answer'}): "
                f"start it (systemctl start docker), or ask for the right to use it, {REMEDY}"
            ) from None
        with suppress(MachineError):
            await call(["docker", "compose", "version"])
            return cls(["docker", "compose"])
        if shutil.which("docker-compose") is not None:
            return cls(["docker-compose"])
        raise MachineError(
            "containers need Docker Compose, and there is neither `docker compose` nor `docker-compose` here: "
            f"install it (on Debian: apt-get install docker-compose), {REMEDY}"
        )

    async def up(self, project: str, file: Path, *services: str) -> None:
        """Create and start services of a Compose file. Raises MachineError."""
        await call([*self.compose, "-p", project, "-f", str(file), "up", "-d", "--no-build", *services])

    async def down(self, label: str) -> None:
        """Remove the containers and networks that have `label`. Raises MachineError."""
        for listed, removed in ((["ps", "--all"], ["rm", "--force"]), (["network", "ls"], ["network", "rm"])):
            ids = (await call(["docker", *listed, "--quiet", "--filter", f"label={label}"])).split()
            if ids:
                await call(["docker", *removed, *ids])

    async def containers(self, label: str) -> list[dict[str, Any]]:
        """Return the `docker inspect` data of every container with `label`, including stopped ones.

        Raises MachineError.
        """
        return await _inspect(["docker", "ps", "--all"], "container", label)

    async def networks(self, label: str) -> list[dict[str, Any]]:
        """Return the `docker inspect` data of every network with `label`. Raises MachineError."""
        return await _inspect(["docker", "network", "ls"], "network", label)

    async def events(self, label: str, since_s: float) -> AsyncIterator[Json]:
        """Yield the events of containers with `label`, as Docker's dicts with `Action` and `Actor`."""
        command = ["docker", "events", f"--since={since_s:.3f}", "--filter=type=container", f"--filter=label={label}"]
        process = await asyncio.create_subprocess_exec(
            *_follow([*command, "--format", "{{json .}}"]), stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                yield json.loads(line)
        finally:
            _end(process)
            await process.wait()


async def _inspect(listing: Sequence[str], kind: str, label: str) -> list[dict[str, Any]]:
    """Return the `docker inspect` data of all that the command `listing` lists with `label`; its kind is `kind`.

    It leaves out what somebody else removes meanwhile, such as another run on this machine that ends. Raises
    MachineError.
    """
    listed = [*listing, "--quiet", "--no-trunc", "--filter", f"label={label}"]
    ids = (await call(listed)).split()
    while ids:
        try:
            found: list[dict[str, Any]] = json.loads(await call(["docker", "inspect", f"--type={kind}", *ids]))
        except MachineError:
            before, ids = ids, (await call(listed)).split()
            if set(before) <= set(ids):  # nothing was removed
                raise
        else:
            return found
    return []


async def call(command: Sequence[str], *, told: bytes | None = None) -> str:
    """Run a command and return its output; `told` is the command's standard input.

    Raises MachineError, with the last lines of the output, if the command fails. The command is killed if the calling
    task is canceled and, on Linux, if this process dies.
    """
    process = await asyncio.create_subprocess_exec(
        *_follow(command),
        stdin=asyncio.subprocess.DEVNULL if told is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said, complaint = await process.communicate(told)
    except asyncio.CancelledError:
        _end(process)
        await process.wait()
        raise
    if process.returncode != 0:
        raise MachineError(f"`{' '.join(command[:3])} ...` failed: {_last_words(complaint or said)}")
    return said.decode(errors="replace")


def _follow(command: Sequence[str]) -> list[str]:
    """Return `command` wrapped so that the kernel kills it when this process dies; unchanged outside Linux."""
    if sys.platform != "linux":
        return list(command)
    become = (
        "from ctypes import CDLL; import os, sys; CDLL(None).prctl(1, 9); "
        "os.getppid() == int(sys.argv[1]) and os.execvp(sys.argv[2], sys.argv[2:])"
    )
    return [sys.executable, "-ISc", become, str(os.getpid()), *command]


def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_words(complaint: bytes) -> str:
    lines = [line.strip() for line in complaint.decode(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-3:]) or "without a word"
