"""The push-sum weight that a record shows to be lost: in shares that were given up, and in states that crashes took.

A share is the part of a sender's push-sum mass that one message carries. It is in its receiver's state once it has
arrived, unless the receiver crashed before it had stored the share and returned with an older state. A share whose
acknowledgement was lost is sent again. If its receiver has lost its state meanwhile, the share arrives anew, although
the lost state contained it, too.

A sender that lost its state makes a new share for the same receiver, round and step. So a share belongs to one life of
its sender's state: from the start, or from a crash that lost the state, to the next such crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, TypeAlias

from netdfl.core.types import NodeId

Share: TypeAlias = tuple[NodeId, NodeId, int, int]
"""The push-sum share in a message, by sender, receiver, round and step.

A restarted sender that has kept its state repeats it with this key. One that has lost its state makes another share,
which has the same key.
"""
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


class ShareArrival(NamedTuple):
    """The times at which a push-sum share arrived and was sent."""

    at: float
    sent: float


@dataclass(frozen=True)
class ShareRecord:
    """A run's events about the push-sum shares in single messages, with times in the unit of the run's record.

    Attributes:
        given_up: the shares that their senders stopped sending again.
        open: the shares that were unacknowledged when their senders ended.
        repeated: the shares that came to nodes that had lost their earlier states.
        arrived: the arrivals of the shares of the three kinds above.
        untaken: the times of crashes before which the receivers had not stored a share.
        returned: the last return of each node from a crash.
        state_lost: the crashes of each node in which it lost its state.
    """

    given_up: list[WeighedShare] = field(default_factory=list[WeighedShare])
    open: list[WeighedShare] = field(default_factory=list[WeighedShare])
    repeated: list[WeighedShare] = field(default_factory=list[WeighedShare])
    arrived: dict[Share, list[ShareArrival]] = field(default_factory=dict[Share, list[ShareArrival]])
    untaken: dict[Share, list[float]] = field(default_factory=dict[Share, list[float]])
    returned: dict[NodeId, float] = field(default_factory=dict[NodeId, float])
    state_lost: dict[NodeId, list[float]] = field(default_factory=dict[NodeId, list[float]])

    @property
    def wanted(self) -> frozenset[Share]:
        """The push-sum shares whose arrivals must be looked up: given up, unacknowledged, taken again after a crash."""
        return frozenset(each.share for each in (*self.given_up, *self.open, *self.repeated))

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
            self.given_up.append(WeighedShare(sent, at, weight))
        elif kind == UNACKNOWLEDGED:
            self.open.append(WeighedShare(sent, at, weight))
        elif kind == UNTAKEN:
            self.untaken.setdefault(got, []).append(at)
        elif kind == TAKEN_AGAIN:
            self.repeated.append(WeighedShare(got, at, weight))
        elif kind == RESTART:
            self.returned[node] = max(at, self.returned.get(node, at))
        elif state == "lost":
            self.state_lost.setdefault(node, []).append(at)

    def arrive(self, share: Share, at: float, sent: float) -> None:
        """Add an arrival of the push-sum share `share` at the time `at`, sent at the time `sent`."""
        self.arrived.setdefault(share, []).append(ShareArrival(at, sent))

    def all_given_up(self) -> list[WeighedShare]:
        """Return each push-sum share that its sender stopped sending again, with the last event about it."""
        return list(self._by_life(self.given_up).values())

    def lost(self) -> list[WeighedShare]:
        """Return the push-sum shares that senders gave up and no state of their receivers contains."""
        given_up = self._by_life(self.given_up)
        return [each for (share, life), each in given_up.items() if not self._is_taken(share, life)]

    def twice(self) -> Iterator[WeighedShare]:
        """Yield push-sum shares that crashes lost but that also exist elsewhere, so that their weight is not lost.

        A share exists elsewhere if it arrived at its receiver again, or if its sender keeps it.
        """
        for each in self.repeated:
            if self._is_taken(each.share, self._life_of_sender(each), each.at):
                yield each
        given_up = self._by_life(self.given_up)
        for (share, life), each in self._by_life(self.open).items():
            stays = each.at >= self.returned.get(share[0], each.at)
            if stays and (share, life) not in given_up and self._is_lost(share, life):
                yield each

    def _life(self, node: NodeId, at: float) -> int:
        """Return how often `node` had lost its state before the time `at`."""
        return sum(lost < at for lost in self.state_lost.get(node, ()))

    def _by_life(self, shares: Iterable[WeighedShare]) -> dict[tuple[Share, int], WeighedShare]:
        """Return the last event about each share, by the share and the number of its sender's earlier state losses."""
        ordered = sorted(shares, key=lambda each: (each.at, each.weight))
        return {(each.share, self._life(each.share[0], each.at)): each for each in ordered}

    def _life_of_sender(self, repeated: WeighedShare) -> int:
        """Return how often the sender had lost its state when it sent the share that its receiver took again."""
        came = [each for each in self.arrived.get(repeated.share, ()) if each.at <= repeated.at]
        return self._life(repeated.share[0], max(came).sent if came else repeated.at)

    def _is_taken(self, share: Share, life: int, before: float = inf) -> bool:
        """Return whether a push-sum share was part of its receiver's state before the time `before`.

        `life` is the number of its sender's state losses before the share was sent.
        """
        came = sorted(each for each in self.arrived.get(share, ()) if each.at < before)
        until = min(before, self.returned.get(share[1], 0))  # a node that stays away keeps what it had
        for at in self.untaken.get(share, ()):
            if at < until and came:
                came.remove(max((each for each in came if each.at <= at), default=came[0]))
        return bool(self._of_life(came, share, life))

    def _is_lost(self, share: Share, life: int) -> bool:
        """Return whether the receiver added a share to its state, lost that in a crash, and never got the share again.

        `life` is the number of the sender's state losses before the share was sent.
        """
        again = [each.at for each in self.repeated if each.share == share and self._life_of_sender(each) == life]
        last = max([*self._of_life(self.arrived.get(share, ()), share, life), *again], default=inf)
        return self._is_taken(share, life) and last <= max(self.state_lost.get(share[1], ()), default=-inf)

    def _of_life(self, came: Iterable[ShareArrival], share: Share, life: int) -> list[float]:
        """Return the times of the arrivals in `came` whose share was sent after `life` state losses of its sender."""
        return [each.at for each in came if self._life(share[0], each.sent) == life]
