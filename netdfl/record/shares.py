"""The push-sum weight that a record shows to be lost: in shares that were given up, and in states that crashes took.

A share is the part of a sender's push-sum mass that one message carries. It is in its receiver's state once it has
arrived, unless the receiver crashed before it had stored the share and returned with an older state. A share whose
acknowledgement was lost is sent again. If its receiver has lost its state meanwhile, the share arrives anew, although
the lost state contained it, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, TypeAlias

from netdfl.core.types import NodeId

Share: TypeAlias = tuple[NodeId, NodeId, int, int]
"""The push-sum share in a message, by sender, receiver, round and step; a restarted sender repeats it with this key."""
GIVEN_UP, UNACKNOWLEDGED, UNTAKEN, TAKEN_AGAIN = "given_up", "unacknowledged", "untaken", "taken_again"
"""Kinds of events about the push-sum share in one message.

Given up: its sender stopped sending it again. Unacknowledged: its sender ended before an acknowledgement came. Untaken:
its receiver crashed and had not stored it. Taken again: by a receiver that had lost its earlier state.
"""
CRASH, RESTART = "crash", "restart"
KINDS = (GIVEN_UP, UNACKNOWLEDGED, UNTAKEN, TAKEN_AGAIN, CRASH, RESTART)


class WeighedShare(NamedTuple):
    """The push-sum share in a message, with its weight and the time of an event about it."""

    share: Share
    at: float
    weight: float


@dataclass(frozen=True)
class ShareRecord:
    """A run's events about the push-sum shares in single messages, with times in the unit of the run's record.

    Attributes:
        given_up: the weights of the shares that their senders stopped sending again.
        open: the shares that were unacknowledged when their senders ended.
        repeated: the shares that came to nodes that had lost their earlier states.
        arrived: the times at which the shares of the three kinds above arrived.
        untaken: the times of crashes before which the receivers had not stored a share.
        returned: the last return of each node from a crash.
        state_lost: the last crash of each node in which it lost its state.
    """

    given_up: dict[Share, float] = field(default_factory=dict[Share, float])
    open: dict[Share, WeighedShare] = field(default_factory=dict[Share, WeighedShare])
    repeated: list[WeighedShare] = field(default_factory=list[WeighedShare])
    arrived: dict[Share, list[float]] = field(default_factory=dict[Share, list[float]])
    untaken: dict[Share, list[float]] = field(default_factory=dict[Share, list[float]])
    returned: dict[NodeId, float] = field(default_factory=dict[NodeId, float])
    state_lost: dict[NodeId, float] = field(default_factory=dict[NodeId, float])

    @property
    def wanted(self) -> frozenset[Share]:
        """The push-sum shares whose arrivals must be looked up: given up, unacknowledged, taken again after a crash."""
        return frozenset((*self.given_up, *self.open, *(each.share for each in self.repeated)))

    def add(
        self, kind: str, at: float, node: NodeId, about: tuple[NodeId, int, int], weight: float, state: str
    ) -> None:
        """Add an event of `node` at the time `at` about the push-sum share in one message, or about a crash or return.

        Events may come in any order. `about` has the other node of the message, the round and the step; `weight` is the
        share's weight. `state` says whether a crash `kept` or `lost` the node's state.
        """
        peer, round, step = about
        sent, got = (node, peer, round, step), (peer, node, round, step)
        if kind == GIVEN_UP:
            self.given_up[sent] = weight
        elif kind == UNACKNOWLEDGED:
            self.open[sent] = max(WeighedShare(sent, at, weight), self.open.get(sent, WeighedShare(sent, -inf, 0)))
        elif kind == UNTAKEN:
            self.untaken.setdefault(got, []).append(at)
        elif kind == TAKEN_AGAIN:
            self.repeated.append(WeighedShare(got, at, weight))
        elif kind == RESTART:
            self.returned[node] = max(at, self.returned.get(node, at))
        elif state == "lost":
            self.state_lost[node] = max(at, self.state_lost.get(node, at))

    def lost(self) -> dict[Share, float]:
        """Return the push-sum shares, with weights, that senders gave up and no state of their receivers contains."""
        return {share: weight for share, weight in self.given_up.items() if not self._is_taken(share)}

    def twice(self) -> Iterator[WeighedShare]:
        """Yield push-sum shares in states lost by crashes that exist elsewhere, too: their weight is not lost.

        They came again to their receiver, or their sender keeps them.
        """
        yield from (each for each in self.repeated if self._is_taken(each.share, each.at))
        for share, each in self.open.items():
            if share not in self.given_up and each.at >= self.returned.get(share[0], each.at) and self._is_lost(share):
                yield each

    def _is_taken(self, share: Share, before: float = inf) -> bool:
        """Return whether the push-sum share `share` was part of its receiver's state before the time `before`."""
        arrived = sum(at < before for at in self.arrived.get(share, ()))
        until = min(before, self.returned.get(share[1], 0))  # a node that stays away keeps what it had
        return arrived > sum(at < until for at in self.untaken.get(share, ()))

    def _is_lost(self, share: Share) -> bool:
        """Return whether the receiver added `share` to its state, lost that in a crash, and did not get it again."""
        again = (each.at for each in self.repeated if each.share == share)
        last = max((*self.arrived.get(share, ()), *again), default=inf)
        return self._is_taken(share) and last <= self.state_lost.get(share[1], -inf)
