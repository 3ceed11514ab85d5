"""The entry process of a container: creates a TUN device, hands it to the forwarder, and becomes the node.

    python -m netdfl.packets.handover NODE TCP SOCKET COMMAND ...
Only this process needs NET_ADMIN; the node is unprivileged. The device and its namespace travel as file descriptors
through the socket of the forwarder. The forwarder needs no privilege: it can read and write the device without entering
the namespace.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from netdfl.core.errors import MachineError
from netdfl.core.types import NodeId
from netdfl.packets.tun import address_of, open_device

OWNER = "NETDFL_OWNER"
"""The environment variable that names the user to become, as `uid:gid`."""
PATIENCE_S = 60
_NODE = struct.Struct("!I")


def main(arguments: list[str]) -> NoReturn:
    """Prepare the container's network, then execute the command in place of this process."""
    node, tcp, forwarder, *command = arguments
    try:
        device, namespace = open_device(address_of(int(node)), tcp), open_namespace()
        become(*map(int, os.environ[OWNER].split(":")))  # the folder of the socket is its owner's alone
        hand_over(int(node), device, namespace, Path(forwarder))
    except (MachineError, OSError) as error:
        sys.exit(f"node {node}: {error}")
    os.execvp(command[0], command)


def open_namespace() -> int:
    """Return a file descriptor of the current network namespace."""
    return os.open("/proc/self/ns/net", os.O_RDONLY)


def become(uid: int, gid: int) -> None:
    """Change the process to this user and group permanently."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def hand_over(node: NodeId, device: int, namespace: int, forwarder: Path) -> None:
    """Send the device and namespace of `node` to the socket `forwarder`, once a process listens there.

    The connection stays open as long as this process lives, whatever program it becomes. Raises MachineError.
    """
    until = time.monotonic() + PATIENCE_S
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    while line.connect_ex(str(forwarder)) != 0:
        if time.monotonic() > until:
            raise MachineError(f"nobody forwards packets at {forwarder}")
        time.sleep(0.1)
    socket.send_fds(line, [_NODE.pack(node)], [device, namespace])
    os.set_inheritable(line.detach(), True)
    for fd in (device, namespace):
        os.close(fd)


def take_over(line: socket.socket) -> tuple[NodeId, int, int] | None:
    """Receive a node and its file descriptors, of device and namespace, from `hand_over`; None for anything else."""
    with suppress(OSError):
        said, fds, *_ = socket.recv_fds(line, _NODE.size, 2)
        if len(said) == _NODE.size and len(fds) == 2:
            return int(_NODE.unpack(said)[0]), fds[0], fds[1]
        for fd in fds:
            os.close(fd)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
