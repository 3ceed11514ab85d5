"""The machines of a Slurm allocation: `srun` starts a fork server on each, as a step of the job.

The module also writes the job's script.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from netdfl.core.errors import MachineError
from netdfl.scenario.model.world import SlurmOptions
from netdfl.worlds.fork_client import ForkServer
from netdfl.worlds.machines.machine import Engine, Offer

_NODE, _FEATURES = re.compile(r"NodeName=(\S+).*? NodeAddr=(\S+)"), re.compile(r" ActiveFeatures=(\S+)")
_OF_THE_JOB = re.compile("SLURM_(?!CONF$)|SLURMD_")


class Slurm(Engine):
    """The Slurm allocation in which this process runs."""

    def __init__(self, options: SlurmOptions) -> None:
        """Store the options, without asking Slurm."""
        self._options = options
        self._started: set[str] = set()

    @override
    async def machines(self) -> Mapping[str, Offer]:
        asked = os.environ.get("SLURM_JOB_NODELIST")
        if not asked:
            raise MachineError(
                "world slurm: this is no Slurm allocation; run it within one, `salloc --nodes 2 netdfl run ...`, or "
                "submit what `netdfl sbatch` writes"
            )
        names = (await _call("scontrol", "show", "hostnames", asked)).split()
        lines = (await _call("scontrol", "--oneliner", "show", "node", asked)).splitlines()
        told = {match[1]: (match[2], _features(line)) for line in lines if (match := _NODE.search(line))}
        found = {name: told.get(name, (name, ())) for name in names}
        return {name: Offer(await _resolved(address), tags) for name, (address, tags) in found.items()}

    def start(self, machine: str) -> ForkServer:
        """Start a job step on `machine`; if the machine failed and left the job, start a new job on it."""
        one = ["--nodes=1", "--ntasks=1", f"--nodelist={machine}", "--unbuffered", "--immediate=10"]
        if machine in self._started and machine not in _allocated():
            place = {"--partition": "SLURM_JOB_PARTITION", "--account": "SLURM_JOB_ACCOUNT", "--qos": "SLURM_JOB_QOS"}
            same = [f"{option}={os.environ[name]}" for option, name in place.items() if os.environ.get(name)]
            outside = {name: value for name, value in os.environ.items() if _OF_THE_JOB.match(name) is None}
            return ForkServer.open(["srun", *one, *same, *self._options.srun], outside)
        self._started.add(machine)
        return ForkServer.open(["srun", *one, "--overlap", *self._options.srun])

    @override
    async def aclose(self) -> None:
        pass


def _allocated() -> list[str]:
    """Return the machines that the job has now; empty if Slurm does not answer."""
    job = os.environ.get("SLURM_JOB_ID", "")
    said = subprocess.run(["squeue", "--noheader", f"--jobs={job}", "--format=%N"], capture_output=True, text=True)
    names = subprocess.run(["scontrol", "show", "hostnames", said.stdout.strip()], capture_output=True, text=True)
    return names.stdout.split()


def _features(line: str) -> tuple[str, ...]:
    match = _FEATURES.search(line)
    return tuple(match[1].split(",")) if match and match[1] != "(null)" else ()


async def _resolved(address: str) -> str:
    """Return the IP address of a host, preferably IPv4."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise MachineError(f"world slurm: the machine {address} has no address here: {error.strerror}") from error
    return str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])


async def _call(*command: str) -> str:
    try:
        called = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise MachineError(f"world slurm: {command[0]} can't be called: {error.strerror}") from error
    said, complained = await called.communicate()
    if called.returncode:
        raise MachineError(f"world slurm: {' '.join(command)}: {complained.decode().strip()}")
    return said.decode()


_AGAIN = """
run={runs}/{name}-$SLURM_JOB_ID
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ] && [ -e "$run/scenario.yaml" ]; then
    exec {netdfl} run --resume "$run"
fi
"""


def script(
    scenario: Path,
    name: str,
    machines: int,
    *,
    resumable: bool = False,
    rejoins: bool = False,
    sets: Sequence[str] = (),
    options: Sequence[str] = (),
) -> str:
    """Return a job script that runs `scenario` on `machines` machines.

    Args:
        scenario: the scenario file.
        name: the name of the job.
        machines: the number of machines.
        resumable: whether nodes save checkpoints, so that a preempted and requeued job continues where it was.
        rejoins: whether the job outlives a machine that fails.
        sets: changes of the scenario, each passed to `netdfl run` by `--set`.
        options: further options of `sbatch`.
    """
    again = ["--requeue", "--open-mode=append"] if resumable else ["--no-requeue"]
    again += ["--no-kill"] if rejoins else []
    wanted = [f"--job-name={name}", f"--nodes={machines}", "--ntasks-per-node=1", f"--output={name}-%j.log", *again]
    netdfl = shlex.join([sys.executable, "-m", "netdfl"])
    set_ = [word for each in sets for word in ("--set", each)]
    command = shlex.join(["run", str(scenario.resolve()), "--on", "slurm", *set_])
    place = _AGAIN.format(runs=shlex.quote(str(Path("runs").resolve())), name=shlex.quote(name), netdfl=netdfl)
    lines = [f"#SBATCH {option}" for option in (*wanted, *options)]
    out = ' --out "$run"' if resumable else ""
    return "\n".join(["#!/bin/sh", *lines, place if resumable else "", f"exec {netdfl} {command}{out}", ""])
