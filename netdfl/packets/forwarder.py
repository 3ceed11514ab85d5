"""The forwarder: carries packets between TUN devices, and applies netdfl's own link rules to each.

There is one thread: a packet is read, enters the path of its edge, and is written when it is
due. A packet's fate comes from the named streams, keyed by its number on its directed edge. Packets that
are due in one nanosecond go in the order in which they came, so that a link that keeps the order
keeps the order of a TCP connection too.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from netdfl.core.fates import FateReason
from netdfl.core.types import Edge, Json, Kind, NodeId, StepId, as_message_id
from netdfl.links.channel import Links
from netdfl.links.edge_state import EdgeState, PathPlan
from netdfl.links.engine import Arrival, InFlight, LinkEngine, as_they_came
from netdfl.links.path import Path
from netdfl.links.schedule.events import CompiledEvent
from netdfl.packets.device_queue import DeviceQueue, quantile_ns
from netdfl.packets.tun import NamespaceAddress, address_of

LIMIT = 4096
"""The most packets of one directed edge that are in queues and under way; further packets are dropped."""
SPIN_NS = 15_000
_BATCH = 32
_LOOKED_AT = 8
"""Of this number of packets of an edge, one is inspected for its wait in the sender's device."""
_LARGEST = 65536
_DATA, _AT = Kind.DATA, StepId(0, 0)


class PacketCounts:
    """The counts of an edge's packets, over all paths that the edge has had."""

    __slots__ = ("delivered", "dropped", "sent", "under_way")

    def __init__(self) -> None:
        """Start with no packets."""
        self.sent = self.delivered = self.under_way = 0
        self.dropped: Counter[FateReason] = Counter()


class Lane(EdgeState):
    """One directed edge of the forwarder with its present path, and the counts of its packets."""

    __slots__ = ("counts",)

    def __init__(self, edge: Edge, path: Path, counts: PacketCounts, *, changing: bool) -> None:
        """Begin on `path`, and count packets in `counts`, which an edge keeps when a new route gives it another path.

        `changing`: whether scheduled events will change links.
        """
        super().__init__(edge, path, PathPlan.computed(path, changing=changing))
        self.counts = counts


class Forwarder:
    """The carrier of a fleet's packets, which applies link rules to each."""

    name: ClassVar[str] = "tun"

    def __init__(self, links: Links, events: Sequence[CompiledEvent], num_nodes: int) -> None:
        """Prepare to carry packets between `num_nodes` nodes, with the timed changes in `events`."""
        self._links = links
        self.devices: dict[NodeId, int] = {}
        self.namespaces: dict[NodeId, int] = {}
        self.places: Mapping[NodeId, NamespaceAddress] = {}
        self.poll = select.epoll()
        self.calls: dict[int, Callable[[], None]] = {}  # by descriptors: what to do when they are readable
        self._nodes: dict[int, NodeId] = {}
        self._by_address = {socket.inet_aton(address_of(node)): node for node in range(num_nodes)}
        self._events = deque(event for event in events if event.at_ns is not None)
        self._changing = bool(self._events)
        self._engine: LinkEngine[Lane, bytes] = LinkEngine(self._arrived, self._dropped, as_they_came)
        self._lanes: dict[Edge, Lane] = {}
        self._routes: dict[int, dict[bytes, Lane]] = {}
        self._late: Counter[int] = Counter()
        self._queue = DeviceQueue()
        self._start_ns = 0
        self.strangers = 0
        self.ended = False

    def add(self, node: NodeId, device: int, namespace: int) -> None:
        """Add `device`, the file descriptor of the TUN device of `node` in its `namespace`."""
        self.devices[node], self.namespaces[node] = device, namespace
        self._nodes[device], self._routes[device] = node, {}

    def now_ns(self) -> int:
        """Return the time since packets began to flow, in ns."""
        return time.monotonic_ns() - self._start_ns

    def serve(self, start_ns: int, control: int, obey: Callable[[], None]) -> None:
        """Carry packets until `ended` is true; call `obey` whenever the file descriptor `control` is readable.

        `start_ns`, on the monotonic clock, is time 0 of the schedule. Packets that were sent earlier wait in devices.
        """
        self._start_ns = start_ns
        timer = NanosecondTimer()
        self.calls |= {control: obey, timer.fd: timer.clear}
        with self.poll as poll:
            for fd in (*self.calls, *self._nodes):
                poll.register(fd, select.EPOLLIN)
            while not self.ended:
                self.advance(self.now_ns())
                for fd, _ in poll.poll(self._rest(timer)):
                    if fd in self._nodes:
                        self._read(fd)
                    else:
                        self.calls[fd]()

    def advance(self, now_ns: int) -> None:
        """Process all that is due: scheduled changes, and packets that leave a stage of their path, such as a queue."""
        while self._events and (self._events[0].at_ns or 0) <= now_ns:
            event = self._events.popleft()
            at_ns = event.at_ns or 0
            self._engine.run(at_ns - 1)
            self._engine.change(self._links.apply(event, at_ns), at_ns)
            if event.core:
                self._take_new_ways()
        self._engine.run(now_ns)

    def _take_new_ways(self) -> None:
        """Use the paths of new routes for packets that come from now on; packets under way stay on the old paths."""
        for edge, lane in list(self._lanes.items()):
            path = self._links.path(*edge)
            if path is not lane.path:
                self._lanes[edge] = Lane(edge, path, lane.counts, changing=self._changing)
        for lanes in self._routes.values():
            lanes.clear()

    def counts(self) -> dict[str, object]:
        """Return the counts of packets, by edge and in total.

        `strangers` counts packets to addresses outside the fleet. `late_ns` has upper bounds in ns for the lateness of
        50 % and of 99 % of the packets, which is the time from when a packet was due to its delivery. `waited_ns` has
        such bounds for the time that packets waited in the sender's device before they were read.
        """
        lanes = sorted(self._lanes.values(), key=lambda lane: lane.edge)
        return {
            "edges": {f"{lane.edge[0]}->{lane.edge[1]}": _sum([lane.counts]) for lane in lanes},
            "packets": _sum([lane.counts for lane in lanes]),
            "strangers": self.strangers,
            "late_ns": {q: quantile_ns(self._late, q / 100) for q in (50, 99)},
            "waited_ns": {q: quantile_ns(self._queue.waits, q / 100) for q in (50, 99)},
        }

    def close(self) -> None:
        """Close the devices and namespaces; those without processes cease to exist."""
        for fd in (*self.devices.values(), *self.namespaces.values()):
            os.close(fd)

    def _rest(self, timer: NanosecondTimer) -> float:
        """Return the next poll's time-out: 0 if an event is due soon, else -1 (none) and `timer` will wake the poll."""
        due = [at for at in (self._engine.next_ns(), self._events[0].at_ns if self._events else None) if at is not None]
        if not due:
            return -1
        at_ns = min(due)
        if at_ns - self.now_ns() < SPIN_NS:
            return 0
        timer.arm(at_ns + self._start_ns - SPIN_NS)
        return -1

    def _read(self, tun: int) -> None:
        routes, start_ns, clock = self._routes[tun], self._start_ns, time.monotonic_ns
        for _ in range(_BATCH):
            try:
                packet = os.read(tun, _LARGEST)
            except BlockingIOError:
                return
            lane = routes.get(packet[16:20]) or self._route(tun, packet)
            if lane is None:
                continue
            counts = lane.counts
            counts.sent += 1
            if not counts.sent % _LOOKED_AT:
                self._queue.look(lane.edge, packet, clock())
            if counts.under_way >= LIMIT:
                counts.dropped[FateReason("limit")] += 1
                continue
            counts.under_way += 1
            id = as_message_id((_DATA, 0, _AT, 0, counts.sent))
            self._engine.enter(lane, packet, id, len(packet), 0, clock() - start_ns)

    def _route(self, tun: int, packet: bytes) -> Lane | None:
        """Return the directed edge of a packet read from the device `tun`, and store it for later packets.

        Return None for a packet to an address that is no other node's.
        """
        dst = self._by_address.get(packet[16:20]) if packet[0] >> 4 == 4 else None
        src = self._nodes[tun]
        if dst is None or dst == src:
            self.strangers += 1
            return None
        if (src, dst) not in self._lanes:
            path = self._links.path(src, dst)
            self._lanes[src, dst] = Lane((src, dst), path, PacketCounts(), changing=self._changing)
        lane = self._routes[tun][packet[16:20]] = self._lanes[src, dst]
        return lane

    def _arrived(self, arrivals: Sequence[Arrival[Lane, bytes]], at_ns: int) -> None:
        for _, lane, packet, unit in arrivals:
            try:
                os.write(self.devices.get(lane.edge[1], -1), packet)
            except OSError:
                lane.counts.dropped[FateReason("device")] += 1
            else:
                lane.counts.delivered += 1
            lane.counts.under_way -= unit is None or not unit.copy
            self._late[(self.now_ns() - at_ns).bit_length()] += 1

    def _dropped(self, unit: InFlight[Lane, bytes], reason: FateReason, at_ns: int) -> None:
        unit.edge.counts.dropped[reason] += 1
        unit.edge.counts.under_way -= not unit.copy


def _sum(counts: Sequence[PacketCounts]) -> Json:
    return {
        "sent": sum(each.sent for each in counts),
        "delivered": sum(each.delivered for each in counts),
        "dropped": dict(sum((each.dropped for each in counts), Counter())),
        "under_way": sum(each.under_way for each in counts),
    }


class NanosecondTimer:
    """A file descriptor that becomes readable at a moment of the monotonic clock, exact to the nanosecond.

    epoll's own time-out counts whole milliseconds, and Python has timerfd from 3.13 on only.
    """

    def __init__(self) -> None:
        """Create the timer without setting it."""
        self._libc = ctypes.CDLL(None)
        self.fd: int = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        self._armed_ns = 0

    def arm(self, at_ns: int) -> None:
        """Set the timer: it becomes readable at `at_ns`."""
        if at_ns != self._armed_ns:
            self._armed_ns = at_ns
            self._libc.timerfd_settime(self.fd, 1, struct.pack("qqqq", 0, 0, *divmod(at_ns, 10**9)), None)

    def clear(self) -> None:
        """Clear the timer, so that it is no longer readable."""
        os.read(self.fd, 8)
        self._armed_ns = 0
