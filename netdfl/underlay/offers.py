"""The rates that senders offer over core links, by time: for the recent past, as reports of them come late.

An offer is the rate at which a sender could send if no core link limited it. Reports that come at 60 ms may say that
one message began at 20 ms and another one at 40 ms. Then the rates of all others are divided anew for 20 to 40 ms, and
from 40 ms on. So at every time the rates on a link add up to no more than the link's rate, once it is known which
messages began or ended by then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from netdfl.core.types import Edge
from netdfl.links.sharing.ways import NO_FLOW

MERGED_NS = 1_000_000
"""Changes that are less than this apart count as one, from the first on, as each time costs a division of all rates."""
MOST_SAID = 4000
"""How many offers of an edge are kept; a further one replaces the last. A node that waits for answers makes fewer."""
_MOST, _LEAST, _FLOWS = 16, 2, 2000
"""The most and the fewest spans of time that are divided at once, and how many flows these may have in all."""


class OfferHistory:
    """The offers (rates at which senders could send) of all edges by time; rates before `floor_ns` are final."""

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
        """Record that `edge` offers the rate `offer_bps` since `since_ns`; return the time in ns from which it counts.

        `NO_FLOW` as the rate means that no message crosses core links.
        """
        since_ns, said = max(since_ns, self.floor_ns), self._said.setdefault(edge, [])
        del said[min(bisect_left(said, (since_ns, NO_FLOW)), MOST_SAID - 1) :]
        said.append((since_ns, offer_bps))
        return since_ns

    def settle(self, at_ns: int) -> None:
        """Make rates before `at_ns` final: never divide them again, and forget offers that held only before."""
        self.floor_ns = at_ns = max(at_ns, self.floor_ns)
        for edge, said in list(self._said.items()):
            held = [offer for since_ns, offer in said if since_ns <= at_ns][-1:]
            kept = [(at_ns, offer) for offer in held if offer != NO_FLOW] + [each for each in said if each[0] > at_ns]
            self._said[edge] = kept
            if not kept:
                del self._said[edge]

    def begins(self, since_ns: int) -> Sequence[int]:
        """Return the times in ns from `since_ns` on at which offers changed, in order; near times are merged."""
        times = sorted({at for said in self._said.values() for at, _ in said if at > since_ns})
        most = max(_LEAST, min(_MOST, _FLOWS // max(1, len(self._said))))
        step_ns = max(MERGED_NS, (times[-1] - since_ns) // most) if times else 0
        found = [since_ns]
        for at_ns in times:
            if at_ns - found[-1] >= step_ns or at_ns == times[-1]:  # an end counts from the next time on
                found.append(at_ns)
        return found

    def between(self, begin_ns: int, end_ns: int | None) -> Mapping[Edge, int]:
        """Return the offers in a span of time by edge; a message that begins or ends within it counts as present."""
        found: dict[Edge, int] = {}
        for edge, said in self._said.items():
            for since_ns, offer in said:
                if since_ns <= begin_ns or (offer != NO_FLOW and (end_ns is None or since_ns < end_ns)):
                    found[edge] = offer
        return {edge: offer for edge, offer in found.items() if offer != NO_FLOW}
