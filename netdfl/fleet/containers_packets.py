"""The forwarder between containers: every node makes its own TUN device and hands it over here.

`python -m netdfl.fleet.containers_packets FOLDER` serves a testbed: packets pass freely until the nodes have
agreed on their start, then they meet the links of FOLDER/scenario.yaml, until no node is left.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from netdfl.core.errors import InputError, MachineError
from netdfl.core.rng import Streams
from netdfl.core.types import NodeId
from netdfl.fleet.by_hand_record import NodeRecord
from netdfl.fleet.containers_compose import SOCKET
from netdfl.fleet.containers_tun import take_over
from netdfl.fleet.forwarder import Forwarder, Timer
from netdfl.fleet.packet_engines import CAPACITY_BPS, asked_bps
from netdfl.fleet.tun import Place, address_of
from netdfl.links.channel import Links
from netdfl.links.events import CompiledEvent
from netdfl.links.spec import LinksSpec
from netdfl.record.run import RunDirectory
from netdfl.scenario.build import build_links, compile_schedule
from netdfl.scenario.load import loads
from netdfl.scenario.schema import Scenario

NODES, NETWORK, LINKS = "nodes", "network", "links.json"
"""What of a testbed's folder is written: by the nodes, each in its own, and by this, in the other."""
_LOOK_NS, _LEFT_ALONE_NS = 50_000_000, 5_000_000_000
_HANDED_OVER_S = 1.0


class Received(Forwarder):
    """The forwarder with the devices that containers hand over, at any time and again after a restart."""

    name: ClassVar[str] = "tun"

    def __init__(self, links: Links, events: Sequence[CompiledEvent], num_nodes: int, listener: socket.socket) -> None:
        """Take devices from `listener`; until then, packets for a node are dropped as `device`."""
        super().__init__(links, events, {}, address_of)
        self.places: dict[NodeId, Place] = {}
        self.namespaces: dict[NodeId, int] = {}
        self.lines: dict[int, socket.socket] = {}
        self.listener = listener
        self._by_address = {socket.inet_aton(address_of(node)): node for node in range(num_nodes)}
        self.calls[listener.fileno()] = self.accept

    def accept(self) -> None:
        """Let the node that knocks take part; its line tells when it ends."""
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
        """The node at `line` ended; its namespace stays, with what is under way to it."""
        self.poll.unregister(line.fileno())
        del self.lines[line.fileno()], self.calls[line.fileno()]
        line.close()

    def join(self, node: NodeId, device: int, namespace: int) -> None:
        """Carry the packets of `device`, which lies in `namespace`, in place of an earlier device of `node`."""
        if node in self.devices:
            self.poll.unregister(self.devices[node])
            os.dup2(device, self.devices[node], inheritable=False)
            os.close(device)
            os.close(self.namespaces[node])
        else:
            self.devices[node] = device
            self._nodes[device], self._routes[device] = node, {}
        self.namespaces[node] = namespace
        self.poll.register(self.devices[node], select.EPOLLIN)

    def take_over(self, other: Received) -> None:
        """Go on with the nodes of `other`, which has ended."""
        self.devices, self._nodes, self.namespaces = other.devices, other._nodes, other.namespaces
        self._routes = {device: {} for device in self._nodes}
        for fd, line in other.lines.items():
            self.lines[fd] = line
            self.calls[fd] = lambda line=line: self.hang_up(line)  # type: ignore[misc]

    def close(self) -> None:
        """Let go of the devices, the namespaces and the nodes."""
        for fd in (*self.devices.values(), *self.namespaces.values()):
            os.close(fd)
        for line in (*self.lines.values(), self.listener):
            line.close()


def open_received(scenario: Scenario, path: Path) -> Received:
    """The forwarder for `scenario`, with its socket at `path`. Raises MachineError where it can't carry as much."""
    spec, events = build_links(scenario), compile_schedule(scenario)
    asked = asked_bps(scenario, spec)
    if asked > CAPACITY_BPS:
        raise MachineError(
            f"the links carry {asked / 1e6:.0f} Mbit/s together, and the forwarder between containers "
            f"{CAPACITY_BPS / 1e6:.0f} Mbit/s; ask for lower rates or fewer nodes, or for loss_layer: message"
        )
    links = Links(spec, Streams(scenario.seed), events)
    return Received(links, events, scenario.num_nodes, listen(path, scenario.num_nodes))


def listen(path: Path, backlog: int) -> socket.socket:
    """A socket at `path` for everybody on this machine who can reach it; one that lies there is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o666)
    listener.listen(backlog)
    return listener


# a testbed's


def main(arguments: list[str]) -> int:
    """Serve the testbed in a folder. Returns the exit code."""
    folder = Path(arguments[0])
    try:
        serve(folder)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def serve(folder: Path) -> None:
    """Forward until no node is left; then count. Raises InputError."""
    text = (folder / "scenario.yaml").read_text(encoding="utf-8")
    scenario = loads(text, file="scenario.yaml", directory=str(folder))
    ruled = open_received(scenario, folder / NETWORK / SOCKET)
    free = Received(Links(LinksSpec({}, {}, scenario.num_nodes), Streams(0)), [], scenario.num_nodes, ruled.listener)
    signal.signal(signal.SIGTERM, lambda *_: _stop(free, ruled))
    looking = Look(folder, free)
    looking.until(lambda: looking.start_ns is not None and time.monotonic_ns() >= looking.start_ns)
    if looking.start_ns is not None:
        ruled.take_over(free)
        Look(folder, ruled, looking.start_ns).until(lambda: False)
    world: Any = scenario.world
    said = {"layer": world.loss_layer, "engine": ruled.name, "tcp": world.tcp}
    RunDirectory(folder / NETWORK).write_json(LINKS, said | ruled.counts())
    ruled.close()


def _stop(*forwarders: Forwarder) -> None:
    for forwarder in forwarders:
        forwarder.ended = True


class Look:
    """What is checked now and then while packets are forwarded: whether the nodes began, and whether they ended."""

    def __init__(self, folder: Path, forwarder: Received, start_ns: int | None = None) -> None:
        """Watch the nodes of `folder`, which write down their start on the monotonic clock."""
        self.folder, self.forwarder, self.start_ns = folder, forwarder, start_ns
        self.came, self.seen_ns, self.timer = start_ns is not None, time.monotonic_ns(), Timer()

    def until(self, over: Callable[[], bool]) -> None:
        """Forward until `over`, or until all nodes left."""
        self.timer.arm(time.monotonic_ns() + _LOOK_NS)
        self.forwarder.serve(self.start_ns or time.monotonic_ns(), self.timer.fd, lambda: self.look(over))

    def look(self, over: Callable[[], bool]) -> None:
        """End the forwarder where it is time to; else look again soon, and not later than the start."""
        self.timer.clear()
        now_ns = time.monotonic_ns()
        if self.forwarder.lines:
            self.came, self.seen_ns = True, now_ns
        if self.start_ns is None:
            self.start_ns = self.find_start()
        if over() or (self.came and now_ns - self.seen_ns > _LEFT_ALONE_NS):
            self.forwarder.ended = True
        soon = now_ns + _LOOK_NS
        self.timer.arm(min(soon, self.start_ns) if self.start_ns is not None and self.start_ns > now_ns else soon)

    def find_start(self) -> int | None:
        """The start that the nodes agreed on, once one of them has written it down since this began."""
        for path in (self.folder / NODES).iterdir():
            with suppress(InputError):
                record = NodeRecord.read(path)
                if record is not None and record.start_monotonic_ns is not None:
                    return record.start_monotonic_ns
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
