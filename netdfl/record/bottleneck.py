"""The bottleneck of a run over an underlay: the shared link on which the critical path spent most of its time on links.

The time of a message on the path counts for one of the shared links that it crosses: the one that had the most to carry
meanwhile. That is measured in seconds of the link's rate, for the bytes of all messages that crossed it then; each
message's bytes are spread evenly over its own time. Rates and routes are those before any event.
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
    """A message on the critical path: its edge, when it was sent, and its seconds on links that belong to the path."""

    edge: Edge
    begin_s: float
    seconds: float


class Bottleneck(NamedTuple):
    """The shared link on which the critical path spent most of its time on links.

    Attributes:
        link: the name of the shared link.
        seconds: the seconds of the critical path that messages spent on links and that are attributed to this one.
        links: the number of edges between nodes that cross it.
    """

    link: str
    seconds: float
    links: int


class _Load:
    """The load of a shared link: when each of its messages was sent and arrived, and its seconds at the link's rate."""

    def __init__(self, rows: Sequence[tuple[float, float, float]]) -> None:
        self._sent, self._arrived, self._takes = (np.array(column) for column in zip(*rows, strict=True))

    def between(self, begin_s: float, end_s: float) -> float:
        """Return the seconds that the link needs for the bytes of messages that crossed it between two times."""
        overlap: NDArray[np.float64] = np.minimum(self._arrived, end_s) - np.maximum(self._sent, begin_s)
        return float((np.maximum(overlap, 0.0) / (self._arrived - self._sent) * self._takes).sum())


def find_bottleneck(
    path: Iterable[PathMessage], messages: Iterable[tuple[int, int, int, float, float]], rates: SharedRates
) -> Bottleneck | None:
    """Return the shared link that took most of the path's time on links; None if no message of the path crossed one.

    `messages` are (source, destination, bytes, time sent in seconds, time of arrival in seconds).
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
