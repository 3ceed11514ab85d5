"""Machines for tests: each with a network, a host name, a clock and a disk of its own, as far as the kernel can tell.

A scenario names them: `world: {kind: "tests.machines.separated:SEPARATED", machines: ...}`. Each is a network namespace
at a bridge, and within it the fork server has a mount namespace where nothing is writable but a `/tmp` of its own, and
a time namespace whose monotonic clock is hours off.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache

from pydantic import Field

from netdfl.core.errors import MachineError
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import MachinesOptions
from netdfl.worlds.base import WorldConfig
from netdfl.worlds.catalog import WorldEntry
from netdfl.worlds.fork_client import ENVIRONMENT, ForkServer
from netdfl.worlds.machines.machine import Offer
from netdfl.worlds.machines.ray import RelayProcess
from netdfl.worlds.machines.world import MachinesWorld

HOUR_S = 3600
INSIDE = """
hostname "$0" && mount --make-rprivate / && mount -t tmpfs tmpfs /tmp &&
mount -o remount,bind,ro / && unset TMPDIR && exec "$@"
"""


@cache
def missing() -> str:
    """Why there can't be such machines here; empty where there can."""
    try:
        with Separated(1) as machines:
            command = [*machines.through(machines.names[0]), "touch", "/not-writable"]
            tried = subprocess.run(command, capture_output=True, text=True)
            return "" if "Read-only" in tried.stderr else f"no separated machines here: {tried.stderr.strip()}"
    except (MachineError, OSError) as error:
        return str(error)


class Separated:
    """Some machines at one switch. An `Engine`."""

    def __init__(self, count: int, name: str = "", subnet: str = "", *, six: bool = False) -> None:
        """Name them `name-0`, `name-1` and so on, as no others are named; nothing is made yet.

        With `six` they have addresses of IPv6 alone.
        """
        self.name, self.count = name or f"m{secrets.token_hex(3)}", count
        name, self.switch = self.name, f"{self.name}-sw"
        self.names = [f"{name}-{number}" for number in range(count)]
        self.tells = True
        self._moved: dict[int, int] = {}
        four = f"10.{64 + secrets.randbelow(64)}.{secrets.randbelow(255)}"
        self.subnet = subnet or (
            f"fd{secrets.token_hex(1)}:{secrets.token_hex(2)}:{secrets.token_hex(2)}:" if six else four
        )

    @property
    def told(self) -> str:
        """What another process finds them by."""
        return f"{self.name} {self.count} {self.subnet}"

    @classmethod
    def found(cls, told: str) -> Separated:
        """Machines that another process, or another part of this one, has made."""
        name, count, subnet = told.split()
        return cls(int(count), name, subnet)

    @property
    def here(self) -> str:
        """Where this machine is reached from them."""
        return self._address(254)

    def __enter__(self) -> Separated:
        """Make the switch and the machines. Raises MachineError."""
        try:
            ip("netns", "add", self.switch)  # by itself: a firewall of this machine is none of theirs
            ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.switch, "link", "set", "bridge", "up")
            ip("link", "add", self.switch, "type", "veth", "peer", "name", "here", "netns", self.switch)
            ip("-n", self.switch, "link", "set", "here", "master", "bridge", "up")
            ip("address", "add", *self._with_length(self.here), "dev", self.switch)
            ip("link", "set", self.switch, "up")
            for number, name in enumerate(self.names):
                self._plug_in(number, name)
        except MachineError:
            self.__exit__()
            raise
        return self

    def _plug_in(self, number: int, name: str) -> None:
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{number}", "netns", self.switch)
        ip("-n", self.switch, "link", "set", f"port{number}", "master", "bridge", "up")
        ip("-n", name, "address", "add", *self._with_length(self.address(number)), "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")

    def __exit__(self, *_: object) -> None:
        """Kill what lives there, and take everything down."""
        for name in [*self.names, self.switch]:
            self.kill(name)
            with suppress(MachineError):
                ip("netns", "delete", name)

    def address(self, number: int) -> str:
        """Where machine `number` is reached."""
        return self._address(self._moved.get(number, number + 1))

    def _address(self, host: int) -> str:
        return f"{self.subnet}:{host:x}" if ":" in self.subnet else f"{self.subnet}.{host}"

    def _with_length(self, address: str) -> list[str]:
        """As `ip` takes it; looking for others that have it would take a second."""
        return [f"{address}/64", "nodad"] if ":" in address else [f"{address}/24"]

    def through(self, name: str) -> list[str]:
        """The command by which another runs there."""
        hours = 100 * (self.names.index(name) + 1)
        time = ["--time", "--monotonic", str(hours * HOUR_S), "--boottime", str(hours * HOUR_S)]
        unshare = ["unshare", "--mount", "--uts", *time, "--fork", "--kill-child"]
        return ["ip", "netns", "exec", name, *unshare, "sh", "-c", INSIDE, name]

    def kill(self, name: str) -> None:
        """Kill everything that lives on a machine, at one blow."""
        with suppress(MachineError):
            for pid in ip("netns", "pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), 9)

    def unplug(self, name: str) -> None:
        """Cut its cable: nothing of it is told of that, nor does anything there end."""
        self._cable(name, "down")

    def plug_in(self, name: str) -> None:
        """Have the cable back."""
        self._cable(name, "up")

    def _cable(self, name: str, state: str) -> None:
        ip("-n", self.switch, "link", "set", f"port{self.names.index(name)}", state)

    def power_off(self, name: str) -> None:
        """Kill it, and let nothing start there any more.

        Its cable goes first: where the machine has no name any more the kernel takes both, at a moment of its own.
        """
        self.kill(name)
        ip("-n", self.switch, "link", "delete", f"port{self.names.index(name)}")
        ip("netns", "delete", name)

    def power_on(self, name: str, host: int = 0) -> None:
        """Have it again, as it was when it was new; with a `host`, at that place of the subnet."""
        number = self.names.index(name)
        self._moved[number] = host or number + 1
        self._plug_in(number, name)

    # an engine

    async def machines(self) -> Mapping[str, Offer]:
        """See `Engine`."""
        return {name: Offer(self.address(number), (f"site={number}",)) for number, name in enumerate(self.names)}

    def start(self, machine: str) -> ForkServer:
        """See `Engine`."""
        return ForkServer.open(self.through(machine)) if self.tells else silently(self.through(machine))

    async def aclose(self) -> None:
        """See `Engine`: they stay until the test takes them down."""


def silently(through: Sequence[str]) -> ForkServer:
    """A fork server whose engine does not tell of its end where that is a machine's, as Slurm for minutes.

    Nor does what is there learn from it that nobody wants it any more.
    """
    command = [*through, sys.executable, "-m", "netdfl.worlds.forkserver"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT | os.environ)
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    last = b""

    def write(data: bytes) -> None:
        nonlocal last
        if not data and b'{"end": null}' in last:
            stdin.close()
        elif data:
            stdin.write(data)
            stdin.flush()
        last = data

    def read() -> bytes:
        if not (data := os.read(stdout.fileno(), 1 << 16)) and process.wait():
            threading.Event().wait()
        return data

    return ForkServer(RelayProcess(write, read, lambda: None))


def ip(*arguments: str) -> str:
    """Call `ip`. Raises MachineError."""
    try:
        return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout
    except (subprocess.CalledProcessError, OSError) as error:
        words = getattr(error, "stderr", "") or str(error)
        raise MachineError(f"ip {' '.join(arguments)}: {words.strip()}") from error


class SeparatedOptions(MachinesOptions):
    """What a scenario may say of this world: the machines were made before."""

    machines: str = Field(description="What `Separated.told` says.")
    tells: bool = Field(True, description="Whether a machine's end is told by what started the fork server there.")


def _make(setting: WorldConfig) -> MachinesWorld:
    return MachinesWorld(setting, _engine(setting.scenario))


def _engine(scenario: Scenario) -> Separated:
    assert isinstance(scenario.world, SeparatedOptions)
    found = Separated.found(scenario.world.machines)
    found.tells = scenario.world.tells
    return found


SEPARATED = WorldEntry(options=SeparatedOptions, make=_make, resumable=True, engine=_engine)
