"""The engines that apply link rules to packets: what each can do, and which one a scenario gets.

- `tun`: a forwarder between TUN devices that runs netdfl's own rules; every rule, repeatable fates, and
  as many packets as one core carries.
- `netem`: the kernel's own queueing disciplines; any rate, where the kernel has them, but only some
  rules, and the kernel's own random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netdfl.core.errors import MachineError
from netdfl.core.installing import pip_install
from netdfl.core.rng import Streams
from netdfl.links.channel import Links
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.spec import LinksSpec
from netdfl.packets.asked import asked_bps
from netdfl.packets.core_links import PacketCore
from netdfl.packets.forwarder import Forwarder
from netdfl.packets.netem import Netem, refusals, unfit
from netdfl.packets.netem import available as netem_available
from netdfl.packets.netns import new_namespace
from netdfl.packets.tun import dropped, open_tun, places
from netdfl.scenario.build import build_links, build_underlay, compile_schedule
from netdfl.scenario.model.schema import Scenario

CAPACITY_BPS = 400e6
"""Capacity of the forwarder in bit/s on one core, in packets of 1500 bytes, measured by benchmarks/forwarder.py."""


class Tun(Forwarder):
    """A forwarder that creates its own devices and namespaces."""

    def __init__(self, links: Links, events: list[CompiledEvent], num_nodes: int, tcp: str) -> None:
        """Create a namespace with a device for each of `num_nodes`; `tcp` is their congestion control.

        Raises MachineError.
        """
        super().__init__(links, events, num_nodes)
        for node in range(num_nodes):
            namespace = new_namespace()
            self.add(node, open_tun(namespace, node, tcp), namespace)
        self.places = places(self.namespaces)

    def counts(self) -> dict[str, object]:
        """Return the counts of packets; `unread` ones were dropped by the kernel because the forwarder was too slow."""
        return super().counts() | {"unread": sum(map(dropped, self.namespaces.values()))}


def open_engine(scenario: Scenario, *, trusted: bool = False) -> Tun | Netem:
    """Return the engine for `scenario`, with a namespace created for each node.

    With `trusted` it is always the forwarder, because the caller keeps the load within the forwarder's capacity. Where
    links act on messages, it is a forwarder without link rules. Raises MachineError if this machine can't run the
    engine.
    """
    world: Any = scenario.world
    size = scenario.num_nodes
    if world.loss_layer == "message":
        return Tun(Links(LinksSpec({}, {}, size), Streams(scenario.seed)), [], size, world.tcp)
    spec, events = build_links(scenario), compile_schedule(scenario)
    if not trusted and choose(scenario, spec, events) == "netem":
        with refusals():
            return Netem(spec, events, size, world.tcp)
    return Tun(packet_links(scenario, spec, events), events, size, world.tcp)


def packet_links(scenario: Scenario, spec: LinksSpec, events: Sequence[CompiledEvent]) -> Links:
    """Return the links of `scenario` for packets, with its core links if it has an underlay."""
    streams, underlay = Streams(scenario.seed), build_underlay(scenario)
    return Links(spec, streams, events, fifo=True, core=None if underlay is None else PacketCore(underlay, streams))


def choose(scenario: Scenario, spec: LinksSpec, events: Sequence[CompiledEvent]) -> str:
    """Return the engine: `tun` (the forwarder) if it can carry the load, else `netem` (the kernel's queues).

    A choice in the scenario's `world.engine` comes first. Raises MachineError if no engine is left.
    """
    wanted = getattr(scenario.world, "engine", "auto")
    asked = asked_bps(scenario, spec)
    if asked <= CAPACITY_BPS and wanted != "netem":
        return "tun"
    fleet = range(scenario.num_nodes)
    rule = unfit(spec, [(i, j) for i in fleet for j in fleet if i != j], events)
    rule = "core links" if scenario.underlay is not None else rule
    if wanted != "tun" and not rule and netem_available():
        return "netem"
    no_netem = f"this kernel has no netem, or this Python no pyroute2 (run `{pip_install('netdfl[namespaces]')}`)"
    lack = f"netem has no {rule}" if rule else no_netem
    if wanted == "netem":
        raise MachineError(f"{lack}; use world.engine: tun, or run it --on processes")
    raise MachineError(
        f"the links carry {asked / 1e6:.0f} Mbit/s together, the forwarder {CAPACITY_BPS / 1e6:.0f} Mbit/s, "
        f"and {lack if wanted == 'auto' else 'world.engine says tun'}; "
        "ask for lower rates or fewer nodes, or run it --on processes"
    )
