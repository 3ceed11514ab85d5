"""The process in a container of a run: it imports modules, waits for its command, and runs that node.

    python -m netdfl.worlds.containers.node NODE
The run directory lies at /netdfl. `containers/NODE.json` holds the command to start the node; the supervisor writes it
when the node shall begin, and again for each restart. `containers/fleet.secret` holds the secret of the run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from netdfl.core.errors import InputError
from netdfl.core.types import NodeId
from netdfl.host.plan import Command, RunPlan, read
from netdfl.transport.security.credentials import Credentials
from netdfl.worlds.containers.compose import HOME
from netdfl.worlds.forkserver import redirect

COMMANDS, PLAN, FLEET_SECRET = "containers", "plan.json", "fleet.secret"
SECRET = "/run/netdfl/life.json"
"""File in the container's memory with the node's TLS credentials, written before the command to start the node."""
PATIENCE_S = 600.0
EXIT_INPUT, EXIT_FORGOTTEN = 2, 6


def main(arguments: list[str]) -> int:
    """Run the node whose number is the first of `arguments`; return the exit code."""
    node, home = int(arguments[0]), Path(HOME)
    redirect(home / "logs" / f"{node:03d}.log")
    try:
        plan = read(RunPlan, json.loads((home / COMMANDS / PLAN).read_text(encoding="utf-8")))
        plan = replace(plan, secret=(home / COMMANDS / FLEET_SECRET).read_text(encoding="ascii"))
        blueprint = plan.blueprint()
    except (OSError, InputError) as error:
        print(f"node {node}: {error}", file=sys.stderr)
        return EXIT_INPUT
    from netdfl.host.process import run_process  # what it imports is there by the time the supervisor asks

    command = wait_for(command_file(home, node))
    if command is None:
        print(f"node {node}: the supervisor never asked for it", file=sys.stderr)
        return EXIT_FORGOTTEN
    return run_process(blueprint, plan, command)


def command_file(home: Path, node: int) -> Path:
    """Return the path of the file in which the supervisor puts the command to start, or restart, `node`."""
    return home / COMMANDS / f"{node:03d}.json"


def wait_for(file: Path) -> Command | None:
    """Wait for the supervisor's command and return it; None if it never comes."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if file.exists():
            command = read(Command, json.loads(file.read_text(encoding="utf-8")))
            return replace(command, address=own_address(), credentials=proof(command))
        time.sleep(0.05)
    return None


def proof(command: Command) -> Mapping[NodeId, Credentials]:
    """Return the TLS credentials of the nodes of `command`, read once from a file; none without TLS."""
    try:
        text = Path(SECRET).read_text(encoding="utf-8")
        Path(SECRET).unlink()
    except FileNotFoundError:
        return {}
    return {command.nodes[0]: read(Credentials, json.loads(text))}


def own_address() -> str:
    """Return the network address of this container: its TUN device's, or the one that Docker gave."""
    import socket

    from netdfl.packets.tun import DEVICE, address_of

    if DEVICE in os.listdir("/sys/class/net"):
        return address_of(int(sys.argv[1]))
    return socket.gethostbyname(socket.gethostname())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
