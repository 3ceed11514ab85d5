"""Notices between nodes that emulate their own links, to divide the rates of downlinks and core links among senders.

A notice is no message of the fleet: it crosses no emulated link, has no row in the record, and its bytes are not
counted. It goes over the connection of heartbeats, so that it does not wait behind models. Notices about core links go
to the supervisor.

Relies on: a carrier that calls `answered` for every notice, even if the receiver is gone.

Why: A node has at most one unanswered notice to each other node; changes in the meantime go into the next notice.
Otherwise notices would queue up where many flows share a link and a machine is busy, and would arrive too late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from netdfl.core.control import CoreFlows
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Edge, Kind, Message, NodeId, Payload
from netdfl.links.channel import Links
from netdfl.links.rules.base import StageOutcome
from netdfl.links.sharing.told import ENDED, DownlinkShares, FlowNotice, ToldLink
from netdfl.transport.emulated.receipts import NO_ATTEMPT

_FLOW, _SHARE, _REFUSED = "flow", "share", "refused"
_FAR = 1 << 62


class ShareNotices:
    """One node's exchange of notices about the downlinks and core links that several senders share.

    It notifies receivers of the messages that this node sends to them, senders of their share of this node's downlink,
    and the supervisor of this node's messages over core links.
    """

    def __init__(
        self,
        node: NodeId,
        epoch: int,
        links: Links,
        carry: Callable[[Message], None],
        report: Callable[[CoreFlows], None],
    ) -> None:
        """Prepare the notices of `node` about the rates of shared links, after `epoch` restarts of the node.

        `links` are the emulated links; `carry` sends a notice to a node, and `report` sends one to the supervisor.
        """
        self._node, self._epoch, self._carry, self._report = node, epoch, carry, report
        self._links, self._ways = links, links.told_ways
        self._told: Mapping[Edge, ToldLink] = {} if links.told is None else links.told.links
        downlink = links.shared_downlink(node)
        self._own = None if downlink is None else DownlinkShares(downlink)
        self._unanswered: set[NodeId] = set()

    @property
    def next_ns(self) -> int | None:
        """The time in ns at which a crashed node's share of this node's downlink is free; None: there is none."""
        return None if self._own is None else self._own.next_ns

    def tell(self, now_ns: int) -> None:
        """Send notices of what has changed on shared links until `now_ns`: to nodes and to the supervisor.

        A node that has not answered its last notice gets none until it does.
        """
        if self._own is not None:
            self._own.go_on(now_ns)
        news: dict[NodeId, dict[str, Any]] = {}
        since_ns, downlink_ns = self._links.shared_since_ns
        for (src, dst), link in self._told.items():
            if src == self._node and dst not in self._unanswered and (notice := link.news(since_ns)) is not None:
                news[dst] = {_FLOW: list(notice)}
        if self._own is not None:
            for src, *share in self._own.news(self._unanswered, downlink_ns):
                news.setdefault(src, {})[_SHARE] = share
        self._unanswered.update(news)
        for node, what in news.items():
            self._send(node, what)
        if self._ways is not None and (offers := self._ways.news(self._node, since_ns)):
            self._report(CoreFlows(tuple(offers)))

    def answered(self, node: NodeId) -> None:
        """Record that `node` has answered its last notice about shared links, or is gone: it may get another."""
        self._unanswered.discard(node)

    def end(self) -> None:
        """Notify receivers and the supervisor that this node leaves, and when its last messages will have passed."""
        since_ns, _ = self._links.shared_since_ns
        for (src, dst), link in self._told.items():
            if src == self._node and (notice := link.end(since_ns)) is not None:
                self._send(dst, {_FLOW: list(notice)})
        if self._ways is not None and (ends := self._ways.ends(self._node)):
            self._report(CoreFlows(tuple(ends)))

    def _send(self, dst: NodeId, what: dict[str, Any]) -> None:
        self._carry(Message(self._node, dst, Kind.PROBE, self._epoch, 0, 0, NO_ATTEMPT, Payload(meta=what)))

    def forget(self, node: NodeId) -> None:
        """Discard the notices about shared links exchanged with `node`, because it is gone or has restarted."""
        if self._own is not None:
            self._own.forget(node)
        if (self._node, node) in self._told:
            self._told[self._node, node].forget()

    def take(self, message: Message, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a notice of another node about a downlink; return new departures and losses of this node's messages.

        The notice names the message that its sender now sends over this node's downlink, the rate in bit/s that this
        node may use on the sender's downlink, or the message of this node for which that downlink's queue has no room.
        Raises MalformedMessage.
        """
        src, meta, told = message.src, message.payload.meta, self._links.told
        share = meta.get(_SHARE)
        match meta.get(_FLOW), share, meta.get(_REFUSED):
            case None, None, int(number):
                return () if told is None else told.refused((self._node, src), number, now_ns)
            case None, [int(), int()], None:
                pass
            case [int(number), int(nbytes), int(offer), int(since_ns)], None | [int(), int()], None if (
                min(number, nbytes, offer) >= 0
            ):
                self._take_flow(src, FlowNotice(number, nbytes, min(offer, _FAR), max(0, since_ns)), now_ns)
            case _:
                raise MalformedMessage(f"a notice of node {src} says {str(meta)[:80]}")
        if share is None or told is None:
            return ()
        rate_bps, since_ns = share
        if not 0 <= rate_bps <= _FAR:
            raise MalformedMessage(f"a notice of node {src} says {str(meta)[:80]}")
        return told.share((self._node, src), rate_bps, now_ns, max(0, since_ns))

    def _take_flow(self, src: NodeId, notice: FlowNotice, now_ns: int) -> None:
        if self._own is None:
            return
        if notice.number == ENDED.number and notice.since_ns > now_ns:
            self._own.keep(src, min(notice.since_ns, _FAR))
        elif not self._own.take(src, notice._replace(since_ns=min(notice.since_ns, now_ns))):
            self._send(src, {_REFUSED: notice.number})
