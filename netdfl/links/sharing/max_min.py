"""Max-min fair rates: no flow's rate can grow without reducing one that is no larger.

They are found by filling: all rates grow together, until a link is full; its flows keep the rate that they have, and
the others grow on (Bertsekas and Gallager, Data Networks, 6.5.2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush
from typing import TypeVar

from netdfl.links.sharing.capacity import SharedLink, ShareTaker

F = TypeVar("F", bound=ShareTaker)


def max_min(flows: Collection[F], capacities: Mapping[SharedLink, int]) -> dict[F, int]:
    """Return the max-min fair rate of each flow that crosses a link of `capacities`; other flows have no limit.

    `capacities` has the links that limit rates. A rate is rounded down to a whole part of a bit per second.
    """
    if len(capacities) == 1:
        ((link, capacity),) = capacities.items()
        crossing = [flow for flow in flows if link in flow.links]
        return dict.fromkeys(crossing, capacity // len(crossing)) if crossing else {}
    return _filled(flows, capacities)


def _filled(flows: Collection[F], capacities: Mapping[SharedLink, int]) -> dict[F, int]:
    crossing: dict[SharedLink, list[F]] = {link: [] for link in capacities}
    for flow in flows:
        for link in flow.links:
            if link in crossing:
                crossing[link].append(flow)
    rates: dict[F, int] = {}
    levels = []
    left: dict[SharedLink, list[int]] = {}  # the capacity and the number of flows that are not settled yet
    for link, those in crossing.items():
        if those:
            left[link] = [capacities[link], len(those)]
            levels.append((capacities[link] // len(those), link.order, link))
    heapify(levels)
    while levels:
        level, order, link = heappop(levels)
        capacity, count = left[link]
        if not count:
            continue
        if capacity // count > level:  # some of its flows were settled below its level
            heappush(levels, (capacity // count, order, link))
            continue
        for flow in crossing[link]:
            if flow not in rates:
                rates[flow] = level
                for other in flow.links:
                    if other in crossing:
                        left[other][0] -= level
                        left[other][1] -= 1
    return rates
