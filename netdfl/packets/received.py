"""The packet forwarder between containers, in which every node creates its own TUN device and hands it over."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from netdfl.core.errors import MachineError
from netdfl.core.types import NodeId
from netdfl.links.channel import Links
from netdfl.links.schedule.events import CompiledEvent
from netdfl.packets.asked import asked_bps
from netdfl.packets.engines import CAPACITY_BPS, packet_links
from netdfl.packets.forwarder import Forwarder
from netdfl.packets.handover import take_over
from netdfl.packets.tun import dropped
from netdfl.scenario.build import build_links, compile_schedule
from netdfl.scenario.model.schema import Scenario

_HANDED_OVER_S = 1.0


class HandedOverForwarder(Forwarder):
    """A forwarder whose devices come from containers, at any time and again after a restart."""

    def __init__(self, links: Links, events: Sequence[CompiledEvent], num_nodes: int, listener: socket.socket) -> None:
        """Accept devices that containers send to `listener`.

        Packets for a node whose device has not come are dropped with the reason `device`.
        """
        super().__init__(links, events, num_nodes)
        self.lines: dict[int, socket.socket] = {}
        self.listener = listener
        self.calls[listener.fileno()] = self.accept

    def accept(self) -> None:
        """Accept a node's connection and its device; when the connection ends, the node has ended."""
        line, _ = self.listener.accept()
        line.settimeout(_HANDED_OVER_S)
        taken = take_over(line)
        if taken is None or taken[0] not in self._by_address.values():
            line.close()
            return
        self.lines[line.fileno()] = line
        self.calls[line.fileno()] = lambda: self.hang_up(line)
        self.poll.register(line.fileno(), select.EPOLLIN)
        self.join(*taken)

    def hang_up(self, line: socket.socket) -> None:
        """Close the connection of a node that has ended; keep its namespace, as packets may be under way to it."""
        self.poll.unregister(line.fileno())
        del self.lines[line.fileno()], self.calls[line.fileno()]
        line.close()

    def join(self, node: NodeId, device: int, namespace: int) -> None:
        """Carry the packets of `device`, which lies in `namespace`, instead of an earlier device of `node`."""
        if node in self.devices:
            self.poll.unregister(self.devices[node])
            os.dup2(device, self.devices[node], inheritable=False)
            os.close(device)
            os.close(self.namespaces[node])
            self.namespaces[node] = namespace
        else:
            self.add(node, device, namespace)
        self.poll.register(self.devices[node], select.EPOLLIN)

    def take_over(self, other: HandedOverForwarder) -> None:
        """Take over the devices and connections of the forwarder `other`, which has ended."""
        self.devices, self._nodes, self.namespaces = other.devices, other._nodes, other.namespaces
        self._routes = {device: {} for device in self._nodes}
        for fd, line in other.lines.items():
            self.lines[fd] = line
            self.calls[fd] = lambda line=line: self.hang_up(line)  # type: ignore[misc]

    def counts(self) -> dict[str, object]:
        """Return the counts of packets, by edge and in total.

        If this process may enter the namespaces, `unread` counts packets that the kernel dropped because the forwarder
        was too slow to read them.
        """
        counted = super().counts()
        with suppress(MachineError):
            counted["unread"] = sum(map(dropped, self.namespaces.values()))
        return counted

    def close(self) -> None:
        """Close the devices, the namespaces and the connections of nodes."""
        super().close()
        for line in (*self.lines.values(), self.listener):
            line.close()


def open_received(scenario: Scenario, path: Path) -> HandedOverForwarder:
    """Return a forwarder for `scenario` that listens at the socket `path`. Raises MachineError for too high rates."""
    spec, events = build_links(scenario), compile_schedule(scenario)
    asked = asked_bps(scenario, spec)
    if asked > CAPACITY_BPS:
        raise MachineError(
            f"the links carry {asked / 1e6:.0f} Mbit/s together, and the forwarder between containers "
            f"{CAPACITY_BPS / 1e6:.0f} Mbit/s; ask for lower rates or fewer nodes, or for loss_layer: message"
        )
    return HandedOverForwarder(
        packet_links(scenario, spec, events), events, scenario.num_nodes, listen(path, scenario.num_nodes)
    )


def listen(path: Path, backlog: int) -> socket.socket:
    """Return a listening Unix socket at `path` for all users of this machine; an earlier socket there is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o666)
    listener.listen(backlog)
    return listener
