"""Machines for tests: each with a network, a host name, a clock and a disk of its own, as far as the kernel can tell.

A scenario names them: `world: {kind: "tests.machines.separated:SEPARATED", machines: 3}`. Each is a network namespace
at a bridge, and within it the fork server has a mount namespace where nothing is writable but a `/tmp` of its own, and
a time namespace whose monotonic clock is hours off.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from pydantic import Field

from netdfl.core.errors import MachineError
from netdfl.scenario.model.world import MachinesOptions
from netdfl.worlds.base import Setting
from netdfl.worlds.catalog import WorldEntry
from netdfl.worlds.fork_client import ForkServer
from netdfl.worlds.machines.world import MachinesWorld

HOUR_S = 3600
INSIDE = """
hostname "$0" && mount --make-rprivate / && mount -t tmpfs tmpfs /tmp &&
mount -o remount,bind,ro / && unset TMPDIR && exec "$@"
"""


def missing() -> str:
    """Why there can't be such machines here; empty where there can."""
    try:
        with Separated("probe", 1) as machines:
            command = [*machines.through("probe-0"), "touch", "/not-writable"]
            tried = subprocess.run(command, capture_output=True, text=True)
            return "" if "Read-only" in tried.stderr else f"no separated machines here: {tried.stderr.strip()}"
    except (MachineError, OSError) as error:
        return str(error)


class Separated:
    """Some machines at one switch. An `Engine`."""

    def __init__(self, name: str, count: int) -> None:
        """Name them `name-0`, `name-1` and so on; nothing is made yet. `name` has at most 8 letters."""
        self.switch = f"{name}-sw"
        self.names = [f"{name}-{number}" for number in range(count)]
        self.third = os.getpid() % 250

    def __enter__(self) -> Separated:
        """Make the switch and the machines. Raises MachineError."""
        try:
            ip("netns", "add", self.switch)  # by itself: a firewall of this machine is none of theirs
            ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self.switch, "link", "set", "bridge", "up")
            ip("link", "add", self.switch, "type", "veth", "peer", "name", "here", "netns", self.switch)
            ip("-n", self.switch, "link", "set", "here", "master", "bridge", "up")
            ip("address", "add", f"10.78.{self.third}.254/24", "dev", self.switch)
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
        ip("-n", name, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
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
        return f"10.78.{self.third}.{number + 1}"

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

    # an engine

    async def machines(self) -> Mapping[str, str]:
        """See `Engine`."""
        return {name: self.address(number) for number, name in enumerate(self.names)}

    def start(self, machine: str) -> ForkServer:
        """See `Engine`."""
        return ForkServer.open(self.through(machine))

    async def aclose(self) -> None:
        """See `Engine`: they stay until the test takes them down."""


def ip(*arguments: str) -> str:
    """Call `ip`. Raises MachineError."""
    try:
        return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout
    except (subprocess.CalledProcessError, OSError) as error:
        words = getattr(error, "stderr", "") or str(error)
        raise MachineError(f"ip {' '.join(arguments)}: {words.strip()}") from error


class SeparatedOptions(MachinesOptions):
    """What a scenario may say of this world."""

    machines: int = Field(2, ge=1, description="How many machines.")


class _Owned(MachinesWorld):
    """The world that makes its machines, and takes them down."""

    def __init__(self, setting: Setting) -> None:
        assert isinstance(setting.scenario.world, SeparatedOptions)
        self.separated = Separated(f"n{os.getpid() % 10**5}", setting.scenario.world.machines)
        super().__init__(setting, self.separated)

    def run(self, course: Callable[..., Any], interrupt: Callable[[], None]) -> Any:
        with self.separated:
            return super().run(course, interrupt)


SEPARATED = WorldEntry(options=SeparatedOptions, make=_Owned)
