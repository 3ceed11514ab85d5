"""The kernel's queueing disciplines as a packet engine: netem for links, tbf and htb for up- and downlinks.

Every node has a veth into one more namespace, the hub, where a bridge joins them. Packets that leave the hub
towards node j are sorted by their sender i into classes, and the class of i holds the netem of the link
i->j; all of them together have j's downlink. A tbf at a node's own end is its uplink. So a packet passes
uplink, link and downlink in the order of a path. The random numbers are the kernel's: fates are not repeatable.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from netdfl.core.errors import MachineError
from netdfl.core.types import Edge, NodeId
from netdfl.links.rules.rate import Shape
from netdfl.links.schedule.active_changes import EffectiveValue, Overlays, effective, own_rules
from netdfl.links.schedule.events import CompiledEvent, is_relative
from netdfl.links.spec import LINK_KEYS, NODE_KEYS, LinksSpec, choose
from netdfl.packets.netns import inside, new_namespace
from netdfl.packets.tun import DEVICE, NamespaceAddress, address_of, configure, offloads_off, places

LIMIT = 4096
_ROOT, _SHARED = 0x10000, 0x10001
_UNLIMITED = "10gbit"
_NO_RULE = {key: EffectiveValue("up" if key == "state" else None) for key in LINK_KEYS}


def available() -> bool:
    """Return whether pyroute2 is installed and this kernel has netem, tried in a temporary namespace."""
    try:
        from pyroute2 import IPRoute, NetlinkError
    except ImportError:
        return False

    def attempt() -> bool:
        with IPRoute() as ip:
            try:
                ip.tc("add", "netem", ip.link_lookup(ifname="lo")[0], _ROOT, delay=1000)
            except NetlinkError:
                return False
        return True

    namespace = new_namespace()
    try:
        return inside(namespace, attempt)
    finally:
        os.close(namespace)


def leaf(values: Mapping[str, EffectiveValue]) -> dict[str, object]:
    """Return the settings of the kernel's netem for a link with the rules `values`.

    Raises ValueError with the name of a rule that netem lacks.
    """
    for key in ("corrupt", "reorder"):
        if values[key].value is not None:
            raise ValueError(key)
    delay, loss, twice, shape = (_built(values[key]) for key in ("latency", "loss", "duplicate", "rate"))
    if delay is not None and delay.quantile is not None:
        raise ValueError("latency that varies")
    if loss is not None and not hasattr(loss, "probability"):
        raise ValueError("loss in bursts")
    if values["state"].value != "up":
        lost = 100.0
    else:
        lost = 0.0 if loss is None else 100 * loss.probability
    rate_bps, limit = _serial(shape)
    return {
        "kind": "netem",
        "delay": 0 if delay is None else round(delay.constant_ns * values["latency"].scale / 1000),
        "loss": lost,
        "duplicate": 0.0 if twice is None else 100 * twice.probability,
        "rate": 0 if rate_bps is None else round(rate_bps * values["rate"].scale / 8),
        "limit": limit,
    }


def unfit(spec: LinksSpec, edges: Sequence[Edge], events: Sequence[CompiledEvent]) -> str:
    """Return the first rule of these links, or of their scheduled changes, that netem lacks; empty if none."""
    try:
        for edge in edges:
            leaf(own_rules(spec, edge).values)
        for node in {node for edge in edges for node in edge}:
            for key in NODE_KEYS:
                _serial(_built(EffectiveValue(getattr(spec.node(node), key))))
        for event in events:
            for key, change in event.parameters.items() if event.acts_on_links else ():
                if key in NODE_KEYS:
                    raise ValueError(f"{key} that changes")
                if key != "state" and not is_relative(change):
                    leaf({**_NO_RULE, key: EffectiveValue(choose(key, change))})
    except ValueError as error:
        return str(error)
    return ""


def _built(value: EffectiveValue) -> Any:
    return None if value.value is None else value.value.build(0)


def _serial(shape: object) -> tuple[float | None, int]:
    """Return rate in bit/s (None: unlimited) and queue limit in packets of `shape`, a link's rate rule.

    Raises ValueError for a rule that netem can't apply.
    """
    if shape is None:
        return None, LIMIT
    if not isinstance(shape, Shape) or shape.burst_bytes or shape.queue_bytes is not None or shape.rate_bps == 0:
        raise ValueError("rate with a burst, a queue in bytes, a trace, or of 0")
    return shape.rate_bps, shape.queue_messages or LIMIT


class Netem:
    """The links of a fleet in the kernel, which join the nodes' namespaces by one more namespace, the hub.

    The thread that makes and calls this object must be in the hub's namespace.
    """

    name: ClassVar[str] = "netem"

    def __init__(self, spec: LinksSpec, events: Sequence[CompiledEvent], num_nodes: int, tcp: str) -> None:
        """Create a namespace for each of `num_nodes`, and the links between all of them.

        `tcp` names the nodes' congestion control.
        """
        from pyroute2 import IPRoute

        self._spec, self._overlays, self._tcp = spec, Overlays(), tcp
        self._events = deque(event for event in events if event.at_ns is not None)
        self._set: dict[Edge, dict[str, object]] = {}
        self.namespaces = {node: new_namespace() for node in range(num_nodes)}
        self.places: Mapping[NodeId, NamespaceAddress] = places(self.namespaces)
        self.ended = False
        self._hub = IPRoute()
        self._hub.link("add", ifname="hub", kind="bridge")
        bridge = self._index("hub")
        self._hub.link("set", index=bridge, state="up")
        for node in self.namespaces:
            self._join(node, bridge)
        self._ports = {node: self._index(f"n{node}") for node in self.namespaces}
        for node in self.namespaces:
            self._sort(node)

    def _index(self, name: str) -> int:
        return int(self._hub.link_lookup(ifname=name)[0])

    def _join(self, node: NodeId, bridge: int) -> None:
        """Connect a node to the hub by a veth pair."""
        peer = {"ifname": DEVICE, "net_ns_fd": self.namespaces[node]}
        self._hub.link("add", ifname=f"n{node}", kind="veth", peer=peer)
        self._hub.link("set", index=self._index(f"n{node}"), master=bridge, state="up")
        offloads_off(f"n{node}")
        uplink, _ = _serial(_built(EffectiveValue(self._spec.node(node).uplink)))
        inside(self.namespaces[node], lambda: _equip(address_of(node), self._tcp, uplink))

    def _sort(self, node: NodeId) -> None:
        """Create the traffic classes of all links to `node`, and the node's downlink."""
        port = self._ports[node]
        downlink, _ = _serial(_built(EffectiveValue(self._spec.node(node).downlink)))
        whole = _UNLIMITED if downlink is None else f"{round(downlink)}bit"
        self._hub.tc("add", "htb", port, _ROOT, default=0)
        self._hub.tc("add-class", "htb", port, _SHARED, parent=_ROOT, rate=whole)
        for src in self.namespaces:
            if src != node:
                one = _class(src)
                self._hub.tc("add-class", "htb", port, one, parent=_SHARED, rate="8kbit", ceil=whole)
                self._shape((src, node), "add", effective(own_rules(self._spec, (src, node)).values, ()))
                sender = int.from_bytes(socket.inet_aton(address_of(src)), "big")
                match = {"protocol": 0x0800, "keys": [f"0x{sender:08x}/0xffffffff+12"]}
                self._hub.tc("add-filter", "u32", port, parent=_ROOT, prio=1, target=one, **match)

    def _shape(self, edge: Edge, how: str, values: Mapping[str, EffectiveValue]) -> None:
        wanted = leaf(values)
        if self._set.get(edge) != wanted:
            self._set[edge] = wanted
            parameters = {key: value for key, value in wanted.items() if key != "kind"}
            one = _class(edge[0])
            self._hub.tc(how, wanted["kind"], self._ports[edge[1]], (one - _ROOT) << 16, parent=one, **parameters)

    def serve(self, start_ns: int, control: int, obey: Callable[[], None]) -> None:
        """Apply scheduled link changes until `ended` is true; call `obey` whenever `control` is readable.

        `control` is a file descriptor; `start_ns`, on the monotonic clock, is time 0 of the schedule.
        """
        while not self.ended:
            now_ns = time.monotonic_ns() - start_ns
            while self._events and (self._events[0].at_ns or 0) <= now_ns:
                self.apply(self._events.popleft())
            rest_s = ((self._events[0].at_ns or 0) - now_ns) / 1e9 if self._events else None
            if select.select([control], [], [], rest_s)[0]:
                obey()

    def apply(self, event: CompiledEvent) -> None:
        """Apply one scheduled change of links."""
        if event.acts_on_links and event.blocks:
            self._overlays.apply(event)
            for edge in self._set:
                if any(edge in block for block in event.blocks):
                    own = own_rules(self._spec, edge).values
                    with refusals():
                        self._shape(edge, "change", effective(own, self._overlays.on_link(edge)))

    def counts(self) -> dict[str, object]:
        """Return the kernel's counts of packets, by edge and in total."""
        edges = {}
        for node, port in self._ports.items():
            for queue in self._hub.get_qdiscs(port):
                src = (queue["handle"] >> 16) - 2
                if (src, node) in self._set:
                    stats = queue.get_attr("TCA_STATS2")
                    passed = stats.get_attr("TCA_STATS_BASIC")["packets"]
                    dropped = stats.get_attr("TCA_STATS_QUEUE")["drops"]
                    one = {"sent": passed + dropped, "delivered": passed, "dropped": {"kernel": dropped}}
                    edges[f"{src}->{node}"] = one
        dropped = sum(one["dropped"]["kernel"] for one in edges.values())
        total = {key: sum(one[key] for one in edges.values()) for key in ("sent", "delivered")}
        return {"edges": edges, "packets": total | {"dropped": {"kernel": dropped}}}

    def close(self) -> None:
        """Close the namespaces; those without processes cease to exist."""
        self._hub.close()
        for namespace in self.namespaces.values():
            os.close(namespace)


@contextmanager
def refusals() -> Iterator[None]:
    """Convert the kernel's errors inside the context to a MachineError of one line."""
    from pyroute2 import NetlinkError

    try:
        yield
    except NetlinkError as error:
        raise MachineError(
            f"the kernel refuses a link of the emulated network ({os.strerror(abs(error.code))}); "
            "use world.engine: tun, or run it --on processes"
        ) from error


def _class(src: NodeId) -> int:
    """Return the traffic class of packets from `src`, which is also the handle of its netem."""
    return _ROOT + src + 2


def _equip(address: str, tcp: str, uplink: float | None) -> None:
    """Set up a node's namespace from inside: its address, no offloads, and its uplink."""
    from pyroute2 import IPRoute

    configure(address, tcp)
    offloads_off(DEVICE)
    if uplink is not None:
        with IPRoute() as ip:
            port = ip.link_lookup(ifname=DEVICE)[0]
            ip.tc("add", "tbf", port, _ROOT, rate=f"{round(uplink)}bit", burst=3000, limit=LIMIT * 1500)
