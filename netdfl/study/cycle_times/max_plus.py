"""The cycle time of a synchronous fleet: the largest mean delay of any cycle of its overlay.

Node i begins round k + 1 at time x_i(k+1), when the messages of round k from all its neighbors j have arrived. With the
delay d(j, i) of a link: x_i(k+1) = max_j x_j(k) + d(j, i).

In the long run a round takes the largest mean of d over the cycles of the overlay (Baccelli, Cohen, Olsder, Quadrat:
Synchronization and linearity, 1992). R. Karp's algorithm (A characterization of the minimum cycle mean, 1978) finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from netdfl.core.types import Edge


def cycle_time(delays: Mapping[Edge, int]) -> Fraction:
    """Return the largest mean of the delays in ns over the cycles of a strongly connected graph, exactly.

    Raises ValueError if the node with the lowest number reaches no cycle.
    """
    nodes = sorted({end for edge in delays for end in edge})
    longest: list[dict[int, int]] = [{nodes[0]: 0}] if nodes else [{}]
    for _ in nodes:
        before, after = longest[-1], dict[int, int]()
        for (src, dst), delay in delays.items():
            if src in before:
                after[dst] = max(after.get(dst, before[src] + delay), before[src] + delay)
        longest.append(after)
    last, count = longest[-1], len(nodes)
    if not last:
        raise ValueError("the overlay has no cycle; give the delays of links in both directions")
    return max(
        min(Fraction(last[node] - walk[node], count - steps) for steps, walk in enumerate(longest[:-1]) if node in walk)
        for node in last
    )
