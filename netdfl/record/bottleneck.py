"""The bottleneck of a run over an underlay: the shared link over which the critical path's time on links went.

A message's time counts for that shared link of its way which had the most to carry meanwhile, in seconds of its rate:
the bytes of all messages that crossed it then, each evenly over its own time. Rates and ways are those before events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netdfl.core.types import Edge

SharedRates: TypeAlias = Callable[[Edge], Mapping[str, float]]
"""A function that returns the shared links that an edge crosses, by name, with their rates in bits per second."""


class PathMessage(NamedTuple):
    """A message on the critical path: its edge, when it was sent, and the seconds that count."""

    edge: Edge
    begin_s: float
    seconds: float


class Bottleneck(NamedTuple):
    """A shared link, the seconds of the critical path that went over it, and how many links of nodes share it."""

    link: str
    seconds: float
    links: int


class _Load:
    """The load of a shared link: for each message its time, and the seconds that its bytes take of the link."""

    def __init__(self, rows: Sequence[tuple[float, float, float]]) -> None:
        self._sent, self._arrived, self._takes = (np.array(column) for column in zip(*rows, strict=True))

    def between(self, begin_s: float, end_s: float) -> float:
        """Return the seconds that the link needs for what crossed it in a time."""
        overlap: NDArray[np.float64] = np.minimum(self._arrived, end_s) - np.maximum(self._sent, begin_s)
        return float((np.maximum(overlap, 0.0) / (self._arrived - self._sent) * self._takes).sum())


def find_bottleneck(
    path: Iterable[PathMessage], messages: Iterable[tuple[int, int, int, float, float]], rates: SharedRates
) -> Bottleneck | None:
    """Return the shared link that took most of the path's time; None where no message of it crossed one.

    `messages` are source, destination, bytes, and when each was sent and arrived, in seconds.
    """
    carried: defaultdict[str, list[tuple[float, float, float]]] = defaultdict(list)
    sharing: defaultdict[str, set[Edge]] = defaultdict(set)
    for src, dst, nbytes, sent_s, arrived_s in messages:
        for link, rate in rates((src, dst)).items() if arrived_s > sent_s else ():
            carried[link].append((sent_s, arrived_s, 8 * nbytes / rate))
            sharing[link].add((src, dst))
    loads = {link: _Load(rows) for link, rows in carried.items()}
    spent: defaultdict[str, float] = defaultdict(float)
    for edge, begin_s, seconds in path:
        there = {link: loads[link].between(begin_s, begin_s + seconds) for link in rates(edge) if link in loads}
        if there:
            spent[max(there, key=lambda link: (there[link], link))] += seconds
    if not spent:
        return None
    link = max(spent, key=lambda link: (spent[link], link))
    return Bottleneck(link, spent[link], len(sharing[link]))
