"""Measures an emulated network from outside the program: numbered UDP packets, and when each one came."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from netdfl.core.errors import MachineError
from netdfl.core.types import NodeId
from netdfl.packets.netns import inside, new_namespace
from netdfl.packets.network import PacketNetwork
from netdfl.packets.tun import open_tun

PORT = 9000
HEADERS = 28  # of IP and UDP
_STAMP = struct.Struct("<Iq")


def missing() -> str:
    """Why namespaces can't be tested here; empty where they can."""
    try:
        namespace = new_namespace()
    except MachineError as error:
        return str(error)
    try:
        os.close(open_tun(namespace, 0, "cubic"))
    except MachineError as error:
        return str(error)
    finally:
        os.close(namespace)
    return ""


SCENARIO = """
schema: netdfl/1
name: probe
seed: 3
nodes: {nodes}
rounds: 1
world: {{kind: namespaces}}
task: {{kind: quadratic, dim: 2}}
algorithm: {{name: lian_dpsgd, lr: 0.1}}
topology: full
links: {links}
events: {events}
"""


@contextmanager
def network(
    directory: Path,
    links: Mapping[str, Any],
    events: list[dict[str, Any]] | None = None,
    nodes: int = 2,
    underlay: Mapping[str, Any] | None = None,
) -> Iterator[PacketNetwork]:
    """The network of a scenario with these links, without a fleet; it flows at once."""
    file = directory / "probe.yaml"
    below = "" if underlay is None else f"underlay: {dict(underlay)}\n"
    file.write_text(SCENARIO.format(nodes=nodes, links=dict(links), events=list(events or ())) + below)
    with PacketNetwork(file, directory) as made:
        made.begin(time.monotonic_ns())
        yield made


def udp_socket(made: PacketNetwork, node: NodeId) -> socket.socket:
    """A UDP socket of `node`, non-blocking, with a large buffer."""
    place = made.places[node]
    namespace = os.open(place["namespace"], os.O_RDONLY)
    try:
        sock = inside(namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    finally:
        os.close(namespace)
    sock.bind((place["address"], PORT))
    sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
    sock.setblocking(False)
    return sock


class Probe:
    """Sends numbered packets over one directed edge; `came` maps each that came to (sent_ns, arrived_ns)."""

    def __init__(self, made: PacketNetwork, src: NodeId, dst: NodeId) -> None:
        """Open a socket at both ends."""
        self.out, self.into = udp_socket(made, src), udp_socket(made, dst)
        self.target = (made.places[dst]["address"], PORT)
        self.sent: list[int] = []
        self.came: dict[int, tuple[int, int]] = {}
        self.order: list[int] = []

    def send(self, nbytes: int = 100) -> None:
        """Send one packet of `nbytes` in all, its headers included."""
        now = time.monotonic_ns()
        stamp = _STAMP.pack(len(self.sent), now)
        self.out.sendto(stamp + bytes(nbytes - HEADERS - len(stamp)), self.target)
        self.sent.append(now)

    def take(self, wait_s: float = 0.0) -> None:
        """Take what came, until nothing came for `wait_s`."""
        while select.select([self.into], [], [], wait_s)[0]:
            packet = self.into.recv(2048)
            number, sent_ns = _STAMP.unpack_from(packet)
            self.came[number] = (sent_ns, time.monotonic_ns())
            self.order.append(number)

    def burst(self, count: int, nbytes: int = 100, pause_s: float = 0.0) -> None:
        """Send `count` packets, take those that come meanwhile, then wait for the last."""
        for _ in range(count):
            self.send(nbytes)
            self.take(pause_s) if pause_s else self.take()
        self.take(0.3)
        self.close()

    def close(self) -> None:
        """Close both ends."""
        self.out.close()
        self.into.close()
