"""The bottleneck of a run over an underlay: the shared link on which the critical path spent most of its time on links.

The time of a message on the path counts for one of the shared links that it crosses: the one that had the most to carry
meanwhile. That is measured in seconds of the link's rate, for the bytes of all messages that crossed it then; each
message's bytes are spread evenly over its own time, except while nothing passes. Rates and routes are those of each
moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netdfl.core.types import Edge

SharedRates: TypeAlias = Callable[[Edge], Sequence[tuple[float, Mapping[str, float]]]]
"""A function that returns the shared links that an edge crosses, by name, with their rates in bits per second.

They may change, so each of these mappings comes with the time in seconds from which it holds, the first with 0. An
empty one says that nothing passes.
"""


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
        spans = list(_spans(rates((src, dst)), sent_s, arrived_s))
        under_way_s = sum(end_s - begin_s for begin_s, end_s, _ in spans)
        for begin_s, end_s, there in spans:
            for link, rate in there.items():
                carried[link].append((begin_s, end_s, (end_s - begin_s) / under_way_s * 8 * nbytes / rate))
                sharing[link].add((src, dst))
    loads = {link: _Load(rows) for link, rows in carried.items()}
    spent: defaultdict[str, float] = defaultdict(float)
    for edge, begin_s, seconds in path:
        end_s = begin_s + seconds
        for since_s, until_s, crossed in _spans(rates(edge), begin_s, end_s):
            there = {link: loads[link].between(since_s, until_s) for link in crossed if link in loads}
            if there:
                share = (until_s - since_s) / (end_s - begin_s)
                spent[max(there, key=lambda link: (there[link], link))] += share * seconds
    if not spent:
        return None
    link = max(spent, key=lambda link: (spent[link], link))
    return Bottleneck(link, spent[link], len(sharing[link]))


def _spans(
    rates: Sequence[tuple[float, Mapping[str, float]]], begin_s: float, end_s: float
) -> Iterator[tuple[float, float, Mapping[str, float]]]:
    """Yield the parts of a time, from begin to end, with the rates that hold in each; none where nothing passes."""
    for place, (since_s, there) in enumerate(rates):
        since_s = max(since_s, begin_s) if place else begin_s
        until_s = min(rates[place + 1][0], end_s) if place + 1 < len(rates) else end_s
        if since_s < until_s and there:
            yield since_s, until_s, there
