"""Debian's packages that tests want, installed where CI runs as root: `python debian.py`, all of them.

It needs nothing but Python, so that it can go on while pip fetches netdfl's packages; who asks meanwhile waits for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence

BROWSER = ("chromium",)
DOCKER = ("docker.io", "docker-compose", "debootstrap", "iptables")
COMMANDS = ("chromium", "dockerd", "docker-compose", "debootstrap", "iptables")
MOST_S = 240
APT = ("apt-get", "-qq", "-o", "Dpkg::Use-Pty=0", "-o", f"DPkg::Lock::Timeout={MOST_S}")


def install(packages: Sequence[str], most_s: float = MOST_S) -> bool:
    """Whether they are there now. Installs nothing on a machine that is not CI's."""
    if not os.environ.get("CI") or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    wanted = [*APT, "install", "-y", "--no-install-recommends", *packages]
    until = time.monotonic() + most_s
    return any(_done(command, until) and command is wanted for command in (wanted, [*APT, "update"], wanted))


def _done(command: Sequence[str], until: float) -> bool:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    quiet = subprocess.DEVNULL
    left = max(1.0, until - time.monotonic())
    try:
        return subprocess.run(command, env=environment, stdout=quiet, stderr=quiet, timeout=left).returncode == 0
    except subprocess.TimeoutExpired:
        return False


if __name__ == "__main__":
    if not all(map(shutil.which, COMMANDS)):
        install((*BROWSER, *DOCKER))
