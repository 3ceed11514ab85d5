"""The rates that senders offer over core links, by time: for the recent past, as reports of them come late.

Reports that come at 60 ms may say that one message began at 20 ms and another one at 40 ms. Then the rates of all
others are divided anew for 20 to 40 ms, and from 40 ms on. So a link's rates of every time add up to no more than it
has, once all that began and ended by then is known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from netdfl.core.types import Edge
from netdfl.links.sharing.ways import NO_FLOW

MERGED_NS = 1_000_000
"""Changes so near to one another begin at the first of them, as each time of its own costs a division of all rates."""
MOST_SAID = 4000
"""How many offers of an edge are kept. A node that waits for answers makes fewer; beyond, a later one takes the last's
place."""
_MOST, _LEAST, _FLOWS = 16, 2, 2000
"""The most and the fewest spans of time that are divided at once, and how many flows these may have in all."""


class OfferHistory:
    """The offers of all edges by time, since a time before which nothing is divided anew."""

    def __init__(self) -> None:
        """Start without offers."""
        self._said: dict[Edge, list[tuple[int, int]]] = {}
        self.floor_ns = 0

    def __contains__(self, edge: Edge) -> bool:
        """Return whether a message crosses core links on `edge` now."""
        return self._said.get(edge, [(0, NO_FLOW)])[-1][1] != NO_FLOW

    @property
    def edges(self) -> Sequence[Edge]:
        """The edges on which a message crosses core links now."""
        return [edge for edge in self._said if edge in self]

    def say(self, edge: Edge, offer_bps: int, since_ns: int) -> int:
        """Record the offer of `edge` since `since_ns`, `NO_FLOW` for no message; return since when it counts."""
        since_ns, said = max(since_ns, self.floor_ns), self._said.setdefault(edge, [])
        del said[min(bisect_left(said, (since_ns, NO_FLOW)), MOST_SAID - 1) :]
        said.append((since_ns, offer_bps))
        return since_ns

    def settle(self, at_ns: int) -> None:
        """Divide nothing before `at_ns` anew from now on, and forget what held only before."""
        self.floor_ns = at_ns = max(at_ns, self.floor_ns)
        for edge, said in list(self._said.items()):
            held = [offer for since_ns, offer in said if since_ns <= at_ns][-1:]
            kept = [(at_ns, offer) for offer in held if offer != NO_FLOW] + [each for each in said if each[0] > at_ns]
            self._said[edge] = kept
            if not kept:
                del self._said[edge]

    def begins(self, since_ns: int) -> Sequence[int]:
        """Return the times from `since_ns` on at which offers changed, in order; few times if flows are many."""
        times = sorted({at for said in self._said.values() for at, _ in said if at > since_ns})
        most = max(_LEAST, min(_MOST, _FLOWS // max(1, len(self._said))))
        step_ns = max(MERGED_NS, (times[-1] - since_ns) // most) if times else 0
        found = [since_ns]
        for at_ns in times:
            if at_ns - found[-1] >= step_ns or at_ns == times[-1]:  # an end counts from the next time on
                found.append(at_ns)
        return found

    def between(self, begin_ns: int, end_ns: int | None) -> Mapping[Edge, int]:
        """Return the offers in a span of time by edge; what begins within counts as there, what ends does too."""
        found: dict[Edge, int] = {}
        for edge, said in self._said.items():
            for since_ns, offer in said:
                if since_ns <= begin_ns or (offer != NO_FLOW and (end_ns is None or since_ns < end_ns)):
                    found[edge] = offer
        return {edge: offer for edge, offer in found.items() if offer != NO_FLOW}
