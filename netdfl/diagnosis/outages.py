"""What the schedule says: whether an edge carries anything now, and when the scenario ends an outage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from netdfl.core.types import Edge, NodeId
from netdfl.links.events import CompiledEvent
from netdfl.links.overlay import Effective, Overlays, effective


class Outage(NamedTuple):
    """Whether an edge is up, when it is up again (None: not known), and whether it keeps messages till then."""

    up: bool = True
    heals_ns: int | None = None
    holds: bool = False


class Outages:
    """The state of links by the compiled schedule. Events that go by rounds show in what they dropped."""

    def __init__(self, events: Sequence[CompiledEvent], base: Callable[[Edge], str] = lambda edge: "up") -> None:
        """`base` is a link's state by the scenario, before any event."""
        self._events = [e for e in events if e.at_ns is not None and e.action in ("set", "unset") and e.blocks]
        self._base = base
        self._crashes = [e for e in events if e.at_ns is not None and e.action == "crash"]

    def ends_ns(self, node: NodeId, now_ns: int) -> int | None:
        """When `node` will crash next, by the clock; None where that is not scripted."""
        return min((e.at_ns or 0 for e in self._crashes if node in e.nodes and (e.at_ns or 0) > now_ns), default=None)

    def edge(self, edge: Edge, now_ns: int) -> Outage:
        """The outage of `edge` at `now_ns`."""
        overlays = Overlays()
        state = base = self._base(edge)
        holds = state == "down_hold"
        for event in self._events:
            at_ns = event.at_ns or 0
            if at_ns > now_ns and state == "up":
                break
            if not any(edge in block for block in event.blocks):
                continue
            overlays.apply(event)
            state = effective({"state": Effective(base)}, overlays.on_link(edge))["state"].value
            if at_ns > now_ns and state == "up":
                return Outage(False, at_ns, holds)
            if at_ns <= now_ns:
                holds = state == "down_hold"
        return Outage() if state == "up" else Outage(False, None, holds)
