"""In a container of a run: load what the launcher shares, wait for its word, and live as that node.

    python -m netdfl.fleet.containers_node NODE

The run directory lies at /netdfl. `containers/NODE.json` says how this life begins; the launcher writes it when it
wants the node, and again for each life.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from netdfl.core.errors import InputError
from netdfl.fleet import preload
from netdfl.fleet.blueprint_file import read_blueprint
from netdfl.fleet.containers_compose import HOME
from netdfl.fleet.nursery import redirect

COMMANDS, PLAN = "containers", "plan.json"
PATIENCE_S = 600.0
EXIT_INPUT, EXIT_FORGOTTEN = 2, 6


def main(arguments: list[str]) -> int:
    """Become the node; returns the exit code."""
    node, home = int(arguments[0]), Path(HOME)
    redirect(home / "logs" / f"{node:03d}.log")
    preload.warm()
    try:
        plan = json.loads((home / COMMANDS / PLAN).read_text(encoding="utf-8"))
        blueprint = read_blueprint(plan)
    except (OSError, InputError) as error:
        print(f"node {node}: {error}", file=sys.stderr)
        return EXIT_INPUT
    command = wait_for(command_file(home, node))
    if command is None:
        print(f"node {node}: the launcher never asked for it", file=sys.stderr)
        return EXIT_FORGOTTEN
    from netdfl.fleet.node_process import run_process

    return run_process(blueprint, plan, command)


def command_file(home: Path, node: int) -> Path:
    """Where the launcher says how the next life of `node` begins."""
    return home / COMMANDS / f"{node:03d}.json"


def wait_for(file: Path) -> dict[str, Any] | None:
    """What the launcher wants, once it has said it; None if it never does."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if file.exists():
            command: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return command | {"address": own_address()}
        time.sleep(0.05)
    return None


def own_address() -> str:
    """The address of this container among the others: that of its device, or the one that Docker gave it."""
    import socket

    from netdfl.packets.tun import DEVICE, address_of

    if DEVICE in os.listdir("/sys/class/net"):
        return address_of(int(sys.argv[1]))
    return socket.gethostbyname(socket.gethostname())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
