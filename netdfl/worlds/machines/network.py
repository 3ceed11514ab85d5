"""The network between a fleet's machines, measured before nodes run; and greetings held until clocks are read."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from netdfl.core.control import EVALUATOR, AskClock, Hello, Report
from netdfl.core.types import NodeId
from netdfl.host.apart import ASKS
from netdfl.worlds.base import WorldListener
from netdfl.worlds.machines.machine import Machine

Way: TypeAlias = tuple[str, str]
Network: TypeAlias = Mapping[Way, Mapping[str, Any]]
MOST_RATES = 12
"""With more machines than this, each measures its rate to the next ones in the list only: a measurement takes 0.2 s."""


async def measure(machines: Sequence[Machine]) -> dict[Way, dict[str, Any]]:
    """Return the round trip time and rate between each pair of machines, or an error text where one can't be reached.

    Round trips come first, while nothing is on the network; then every machine sends one stream at a time, and receives
    one. Raises RunError if a machine is lost.
    """
    if len(machines) < 2:
        return {}
    found: dict[Way, dict[str, Any]] = {}
    others = [[other.name for other in machines if other is not machine] for machine in machines]
    async with _serving(machines) as (ports, token):
        for what, rounds in (("round_trip_s", [others]), ("rate_bps", list(_turns(machines)))):
            for names in rounds:
                targets = [{name: ports[name] for name in each} for each in names]
                asked = [
                    machine.look({"measure": {"what": what, "token": token, "targets": targets[number]}})
                    for number, machine in enumerate(machines)
                ]
                for machine, told in zip(machines, await asyncio.gather(*asked), strict=True):
                    for other, figure in told["measured"].items():
                        found.setdefault((machine.name, other), {})[what] = figure
    return found


@asynccontextmanager
async def _serving(machines: Sequence[Machine]) -> AsyncIterator[tuple[Mapping[str, tuple[str, int]], str]]:
    """Start a measurement server on every machine; yield their addresses, and the token that they demand."""
    token = secrets.token_hex(16)
    served: dict[str, tuple[str, int]] = {}
    pids: list[tuple[Machine, int]] = []
    try:
        for machine in machines:
            told = await machine.look({"serve": {"address": machine.address, "token": token}})
            served[machine.name] = (machine.address, told["port"])
            pids.append((machine, told["pid"]))
        yield served, token
    finally:
        for machine, pid in pids:
            machine.stop(pid)


def _turns(machines: Sequence[Machine]) -> Iterator[list[list[str]]]:
    """Yield turns for measuring rates: in each, every machine sends a stream to one other, and receives one.

    A turn has, for each machine, the list with the name of its receiver.
    """
    count = len(machines)
    for step in range(1, min(count, MOST_RATES)):
        yield [[machines[(number + step) % count].name] for number in range(count)]


class ClockFirstListener:
    """A listener that delays a node's first report, its `Hello`, until the node has read the supervisor's clock."""

    def __init__(self, news: WorldListener) -> None:
        """Pass all reports of nodes on to the listener `news`, but delay each node's `Hello`."""
        self._news = news
        self._hellos: dict[NodeId, Hello] = {}
        self.exited, self.came_back = news.exited, news.came_back
        self.refused, self.broke = news.refused, news.broke

    def report(self, node: NodeId, report: Report) -> None:
        """Pass a report on, but hold a node's `Hello` until the node's last question for the supervisor's clock."""
        if isinstance(report, Hello) and node != EVALUATOR:
            self._hellos[node] = report
            return
        self._news.report(node, report)
        if report == AskClock(ASKS - 1) and node in self._hellos:  # answered before anything that follows the hello
            self._news.report(node, self._hellos.pop(node))
