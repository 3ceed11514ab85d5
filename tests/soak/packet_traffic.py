"""Traffic over shared links, sent over real TCP between namespaces and through the model of TCP.

Both have one scenario and the same messages, each of an edge behind the ones before it. Over packets, an edge is one
connection, open before time 0.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from netdfl.core.rng import Streams
from netdfl.core.types import Edge, Kind
from netdfl.diagnosis.fidelity import judge_packets
from netdfl.links.channel import Links
from netdfl.links.rules.base import Transit
from netdfl.links.rules.tcp import default_table
from netdfl.packets.netns import inside
from netdfl.packets.network import PacketNetwork
from netdfl.scenario.build import build_links, build_underlay, compile_schedule
from netdfl.scenario.load import load
from netdfl.underlay.shared import SharedCore
from tests.links.driving import drive
from tests.soak.disturbed import DisturbedError

S, MBIT, MB = 10**9, 10**6, 10**6
ZERO_S = 4.0
"""Time 0 after the start of the network, by which all connections must be open."""
PATIENCE_S = 120.0


class Group(NamedTuple):
    """The figures of a group of messages, in s after time 0: the mean arrival and the last one."""

    mean_s: float
    last_s: float

    @classmethod
    def of(cls, arrivals: Mapping[int, float]) -> Group:
        """The figures of arrivals in s."""
        return cls(fmean(arrivals.values()), max(arrivals.values()))


@dataclass
class Traffic:
    """Messages (at s, src, dst, bytes) over the links of a scenario; the events' times count from time 0."""

    messages: Sequence[tuple[float, int, int, int]]
    links: Mapping[str, Any]
    underlay: Mapping[str, Any] | None = None
    events: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    def document(self, world: Mapping[str, Any]) -> dict[str, Any]:
        """The scenario, whose fleet is never started."""
        nodes = 1 + max(node for _, *edge, _ in self.messages for node in edge)
        events = [{**event, "at": f"{ZERO_S + event['at']}s"} for event in self.events]
        below = {} if self.underlay is None else {"underlay": dict(self.underlay)}
        task = {"task": {"kind": "quadratic", "dim": 2}, "algorithm": {"name": "lian_dpsgd", "lr": 0.1}}
        head = {"schema": "netdfl/1", "name": "traffic", "seed": 3, "nodes": nodes, "rounds": 1, "topology": "full"}
        return head | task | below | {"world": dict(world), "links": dict(self.links), "events": events}

    def by_model(self) -> Group:
        """Send the messages through the link engine with the model of TCP."""
        return Group.of(self.arrivals_by_model())

    def over_packets(self, folder: Path) -> Group:
        """Send the messages over TCP between namespaces, with files in `folder`. Raises DisturbedError."""
        return Group.of(self.arrivals_over_packets(folder))

    def lasted(self, arrivals: Mapping[int, float]) -> dict[int, float]:
        """How long each message took from its start to its arrival, in s, by its place."""
        return {n: at_s - self.messages[n][0] for n, at_s in arrivals.items()}

    def arrivals_by_model(self) -> dict[int, float]:
        """When each message that comes is there by the model, in s after time 0, by its place."""
        scenario = load(self.document({"kind": "simulated", "loss_layer": "packet"}))
        streams, events, underlay = Streams(scenario.seed), compile_schedule(scenario), build_underlay(scenario)
        core = None if underlay is None else SharedCore(underlay, streams, over_tcp=True)
        links = Links(build_links(scenario), streams, events, default_table(), core=core)
        sent = [
            (round((ZERO_S + at) * S), Transit(src, dst, Kind.DATA, n, 0, 0, nbytes))
            for n, (at, src, dst, nbytes) in enumerate(self.messages)
        ]
        ends = drive(links, events, sent)
        assert len(ends) == len(sent)
        return {end.unit.round: end.at_ns / S - ZERO_S for end in ends if end.reason is None}

    def arrivals_over_packets(self, folder: Path) -> dict[int, float]:
        """When each message is there over TCP, in s after time 0, by its place. Raises DisturbedError."""
        file = folder / "traffic.yaml"
        file.write_text(json.dumps(self.document({"kind": "namespaces"})))
        with PacketNetwork(file, folder) as network:
            start_ns = time.monotonic_ns()
            network.begin(start_ns)
            zero_ns = start_ns + round(ZERO_S * S)
            edges = {(src, dst): Connection(network, (src, dst), n) for n, (src, dst) in enumerate(self._edges())}
            late = time.monotonic_ns() - zero_ns
            if not self.events:
                zero_ns += late + S // 10
            assert late < 0 or not self.events, f"the connections took {late / S:.2f} s too long; give ZERO_S more"
            for edge, connection in edges.items():
                for n in self._over(edge):
                    at, _, _, nbytes = self.messages[n]
                    connection.due.append((zero_ns + round(at * S), nbytes))
            for connection in edges.values():
                connection.start()
            ends = {edge: each.finish() for edge, each in edges.items()}
            if missed := judge_packets(network.end()):
                raise DisturbedError(missed)
        arrived = {n: at_ns for edge, each in ends.items() for n, at_ns in zip(self._over(edge), each, strict=True)}
        return {n: (at_ns - zero_ns) / S for n, at_ns in arrived.items()}

    def _over(self, edge: Edge) -> list[int]:
        """The places of the messages of `edge`, in the order in which they are sent."""
        places = [n for n, (_, *between, _) in enumerate(self.messages) if tuple(between) == edge]
        return sorted(places, key=lambda n: self.messages[n])

    def _edges(self) -> list[Edge]:
        return sorted({(src, dst) for _, src, dst, _ in self.messages})


class Connection:
    """One TCP connection: a thread that sends the messages that are `due`, and one that notes when each is there."""

    def __init__(self, network: PacketNetwork, edge: Edge, number: int) -> None:
        """Connect the nodes of `edge`."""
        self.due: list[tuple[int, int]] = []
        self.arrived: list[int] = []
        ends = [os.open(network.places[node]["namespace"], os.O_RDONLY) for node in edge]
        address = (network.places[edge[1]]["address"], 9100 + number)
        server = inside(ends[1], lambda: socket.create_server(address))
        with server:
            self._out = inside(ends[0], lambda: socket.create_connection(address, timeout=10))
            self._into, _ = server.accept()
        for end in ends:
            os.close(end)
        self._out.settimeout(PATIENCE_S)
        self._into.settimeout(PATIENCE_S)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._receive)]

    def start(self) -> None:
        """Begin to send and to receive."""
        for thread in self._threads:
            thread.start()

    def finish(self) -> list[int]:
        """Return when each message was there, by the monotonic clock."""
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._out.close()
        self._into.close()
        assert len(self.arrived) == len(self.due), "a message did not come"
        return self.arrived

    def _send(self) -> None:
        for at_ns, nbytes in self.due:
            time.sleep(max(0.0, (at_ns - time.monotonic_ns()) / S))
            self._out.sendall(bytes(nbytes))

    def _receive(self) -> None:
        for _, nbytes in self.due:
            left = nbytes
            while left:
                left -= len(self._into.recv(min(left, 1 << 16)))
            self.arrived.append(time.monotonic_ns())
