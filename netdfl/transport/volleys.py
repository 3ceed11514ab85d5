"""Volleys: what a node sends to several at once, kept as one thing until it arrives.

Most of what a fleet sends leaves a node for all of its neighbors at one instant, and where their links are alike it
arrives at one instant too. An instant of a fabric holds either such volleys or single messages: where it has to hold
others, or somebody looks at what is under way, volleys are taken apart first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from netdfl.core.types import Message
from netdfl.transport.edge_queues import Arrivals, Due, End, Volley


def apart(volleys: Sequence[Volley]) -> list[Due]:
    """All their messages, in the order in which they were sent."""
    return [due for volley in volleys for due in volley.dues()]


def are_alike(volleys: Sequence[Volley]) -> bool:
    """Whether all their messages differ in their edges and contents alone, and were sent at one instant."""
    first = volleys[0]
    id, ends = first.multicast.id, (first.nbytes, first.sent_ns)
    return all([each.multicast.id == id and (each.nbytes, each.sent_ns) == ends for each in volleys])


def by_target(volleys: Sequence[Volley]) -> Arrivals:
    """What comes for each end; ends go in the order of the least tie of what comes."""
    come: dict[End, list[Message]] = {}
    least: dict[End, int] = {}
    for lanes, multicast, _, salt, _ in volleys:
        head = multicast.first
        for target, tie in zip(lanes.targets, lanes.ties, strict=True):
            place = tie ^ salt
            if target not in come:
                come[target], least[target] = [head], place
                continue
            come[target].append(head)
            if place < least[target]:
                least[target] = place
    return [(target, come[target]) for target in sorted(least, key=least.__getitem__)]


class TakenApart:
    """Volleys of which some ends take nothing at once: their messages by target, made when first asked for."""

    def __init__(self, volleys: Sequence[Volley]) -> None:
        self._volleys = volleys
        self._of: defaultdict[End, list[Due]] | None = None

    def of(self, target: End) -> list[Due]:
        """What comes for `target`."""
        if self._of is None:
            self._of = defaultdict(list)
            for due in apart(self._volleys):
                self._of[due[1].target].append(due)
        return self._of[target]
