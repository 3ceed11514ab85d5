"""The sharing of emulated core links among real nodes: they report their flows, the supervisor sends each flow's rate.

A core link is a link of the underlay that several paths share; a flow is the messages of one path that cross it now.
Reports that come within a short pause are answered together, so that a thousand flows that begin at once cost one
computation of rates. The pause grows with the time that such a computation takes, so that the supervisor has time for
its other work.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from netdfl.core.clock import Timer
from netdfl.core.control import CoreFlows, CoreRates
from netdfl.core.fates import MALFORMED, FateReason
from netdfl.core.rng import Streams
from netdfl.core.types import NodeId
from netdfl.scenario.build import build_underlay
from netdfl.supervisor.fleet import FleetState
from netdfl.underlay.shared import SharedCore
from netdfl.underlay.told import CoreDivision
from netdfl.worlds.base import VirtualWorld

PAUSE_NS = 1_000_000
_TIMES = 4
"""The pause between two computations of flow rates, as a multiple of the time that the last one took."""


class CoreLinkRates:
    """The division of core links' bandwidth among the flows of a fleet whose nodes emulate their own links."""

    def __init__(self, fleet: FleetState, refused: Callable[[str, FateReason, NodeId], None]) -> None:
        """Prepare to share the core links of `fleet`. `refused` gets text, reason and sender of each invalid report."""
        self._fleet, self._refused = fleet, refused
        core = None if isinstance(fleet.world, VirtualWorld) else build_underlay(fleet.scenario)
        shared = None if core is None else SharedCore(core, Streams(fleet.scenario.seed))
        self._division = None if shared is None else CoreDivision(shared, fleet.schedule, fleet.scenario.num_nodes)
        self._asked: set[NodeId] = set()
        self._timer: tuple[int, Timer] | None = None
        self._next_ns = 0
        self._closed = False

    def begin(self) -> None:
        """Apply scheduled changes of core links from now on; the fleet has just started."""
        if self._division is not None and (due := self._division.next_ns) is not None:
            self._wake_at(due)

    def take(self, node: NodeId, report: CoreFlows) -> None:
        """Record the flows that `node` reports; after a short pause, the supervisor sends the node their rates."""
        try:
            if self._division is None:
                raise ValueError(f"node {node} offers rates over core links, and the fleet has none")
            self._division.take(node, report.offers, self._fleet.now_ns())
        except ValueError as error:
            self._refused(str(error), MALFORMED, node)
            return
        self._asked.add(node)
        self._wake_at(max(self._next_ns, self._fleet.now_ns() + PAUSE_NS))

    def forget(self, node: NodeId) -> None:
        """Remove the flows of `node`, which crashed or ended; messages that it had handed over keep their bandwidth."""
        if self._division is not None:
            self._division.forget(node, self._fleet.now_ns())
            self._asked.discard(node)
            self._wake_at(max(self._next_ns, self._fleet.now_ns() + PAUSE_NS))

    def close(self) -> None:
        """Stop sending rates to nodes."""
        self._closed = True
        if self._timer is not None:
            self._timer[1].cancel()

    def _wake_at(self, at_ns: int) -> None:
        if self._closed or (self._timer is not None and self._timer[0] <= at_ns):
            return
        if self._timer is not None:
            self._timer[1].cancel()
        self._timer = at_ns, self._fleet.world.clock.call_at(at_ns, ("core links",), self._divide)

    def _divide(self) -> None:
        assert self._division is not None
        self._timer, began_ns = None, time.monotonic_ns()
        self._division.go_on(self._fleet.now_ns())
        news, asked = self._division.news(), self._asked
        self._asked = set()
        for node in sorted({*news, *asked}):
            self._fleet.world.order(node, CoreRates(tuple(news.get(node, ())), node in asked))
        self._next_ns = self._fleet.now_ns() + _TIMES * (time.monotonic_ns() - began_ns)
        self.begin()
