"""Pairwise averaging: two nodes meet and both leave with their mean, X+ = (I - (e_i - e_j)(e_i - e_j)' / 2) X.

The two exchange the amount by which each moves: i asks with x_i, j answers with h = (x_i - x_j) / 2, j becomes x_j + h
and i becomes x_i - h. So the sum over the nodes is preserved as soon as i receives h, and a late answer must still be
used when it arrives. Source: AD-PSGD, Lian et al. 2018.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, NodeId, Payload, View
from netdfl.mixing.payloads import pack, vector
from netdfl.training.sgd import NoState, Stateless

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Pairwise(Stateless):
    """Pairwise averaging: the choice of a peer, and both sides of an exchange.

    `random` draws a peer each round. `successor` asks the peer with the next higher number first, then the others in
    turn, and a node answers no request before its own first one. With `halves`, some nodes ask and the others answer.
    `step` says whether a node's local steps count before or after its own exchange of the round.
    """

    order: Literal["random", "successor"]
    streams: Streams
    halves: bool = False
    step: Literal["before", "after"] = "before"
    push = True

    @property
    def asks_first(self) -> bool:
        """Whether a node answers requests only after its own first exchange."""
        return self.order == "successor"

    def weight(self, state: NoState) -> float:
        """Return 1, because the method has no push-sum weight."""
        return 1.0

    def peer(self, view: View) -> NodeId | None:
        """Return the peer to ask in the view's round; None if this node only answers."""
        peers = sorted(view.out_neighbors)
        if not peers:
            return None
        if self.order == "random":
            return peers[self.streams.integer("pair", view.node, view.round) % len(peers)]
        return peers[(bisect_right(peers, view.node) + view.round) % len(peers)]

    def request(self, x: Tensor) -> Payload:
        """Return the request, which carries the vector x_i."""
        return pack(x)

    def answer(self, x: Tensor, request: Message) -> tuple[Tensor, Payload]:
        """Return the asked node's new vector, and its reply, the amount h. Raises MalformedMessage."""
        half = (vector(request, x) - x).div_(2)
        return x + half, pack(half)

    def settle(self, x: Tensor, replies: Inbox) -> Tensor:
        """Return the asking node's vector, moved by the amount h in each reply, early or late.

        Raises MalformedMessage.
        """
        for reply in (message for message in replies if message.kind is Kind.REPLY):
            x = x - vector(reply, x)
        return x
