"""Core links as a sender knows them from the supervisor, in worlds where each node emulates its own links.

A sender tells the supervisor how fast it could send over core links to each receiver if these did not limit it: its
offer. The supervisor divides every core link among all offers, and tells each sender the largest rate that it may use.
"""

from __future__ import annotations

from collections.abc import Sequence

from netdfl.core.control import CoreRate
from netdfl.core.types import Edge, NodeId
from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.network import FairNetwork
from netdfl.links.sharing.told import CLOSE, ToldLink

NO_FLOW = -1
"""The value reported in place of a possible rate in bit/s where no message of an edge crosses core links."""


class ToldWays:
    """A sender's routes over core links of the underlay, one for each edge.

    Each route is modeled as one link, with the rate that the supervisor last sent for it. The supervisor answers each
    report of the rates at which the sender could send. Changes before the answer are kept for the next report.
    """

    def __init__(self) -> None:
        """Start without routes."""
        self.links: dict[Edge, ToldLink] = {}
        self._offers: dict[NodeId, int] = {}
        self._unanswered = False

    def add(self, edge: Edge, whole: SharedLink) -> ToldLink:
        """Add the route of `edge` over core links as one link; `whole` has the route's rate without other flows."""
        return self.links.setdefault(edge, ToldLink(edge, whole, rank=5, waits=True))

    def news(self, node: NodeId, since_ns: int = 0) -> Sequence[CoreRate]:
        """Return the rates at which `node` could send, where they changed since the last report.

        There are none while the supervisor has not answered that report. `since_ns` is the time of the last change of
        rates; a message's first rate holds since it began.
        """
        found: list[CoreRate] = []
        if self._unanswered:
            return found
        for (src, dst), link in self.links.items():
            if src == node:
                before, offer = self._offers.get(dst, NO_FLOW), self._offer(link, since_ns)
                if abs(offer - before) * CLOSE > abs(before):
                    self._offers[dst] = offer
                    found.append(CoreRate(dst, offer, link.known.since_ns))
        self._unanswered = bool(found)
        return found

    def ends(self, node: NodeId) -> Sequence[CoreRate]:
        """Return a last report: until when, in ns, the messages that `node` sent before its end cross core links."""
        ways = [(dst, self.links[node, dst]) for dst, offer in self._offers.items() if offer != NO_FLOW]
        found = [CoreRate(dst, NO_FLOW, link.freed_ns) for dst, link in ways if not link.flows]
        self._offers |= {each.dst: NO_FLOW for each in found}
        return found

    def go(self, network: FairNetwork) -> None:
        """Let all messages leave at the rates known now, or at a route's undivided rate if the supervisor sent none."""
        for link in self.links.values():
            link.go()
            network.touch(link)

    @staticmethod
    def _offer(link: ToldLink, since_ns: int) -> int:
        link.news(since_ns)
        return NO_FLOW if link.whole.capacity is None or link.known.number == 0 else link.known.offer_bps

    def take(
        self, node: NodeId, rates: Sequence[CoreRate], network: FairNetwork, now_ns: int, *, answers: bool
    ) -> None:
        """Use the supervisor's rates for the messages of `node`; each holds until the next rate for the same receiver.

        `answers` says that the rates answer the node's last report of the rates at which it could send.
        """
        for each in rates:
            if (node, each.dst) in self.links:
                self.links[node, each.dst].take_share(each.rate_bps, min(each.since_ns, now_ns), network)
        self._unanswered = self._unanswered and not answers
