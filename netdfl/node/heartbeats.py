"""A failure detector of the nodes' own: heartbeats that cross the links, and who has missed too many.

It is as right as heartbeats can be: a node behind a broken link is taken for gone, and comes back when it
is heard again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

from netdfl.core.clock import Clock
from netdfl.core.types import Kind, Message, MessageId, Multicast, NodeId, Payload, StepId
from netdfl.node.mailbox import Mailbox
from netdfl.transport.base import Fate, Transport

MOST_BEATS = 1000
"""Beats within which a run of losses must be expected for a wait to be left to it."""
AVERAGES = 5
"""How many times as long a wait is left to it: by then all but one in a hundred and fifty have ended."""
RECENT = 100
"""How many beats are lost is judged by so many of the last, at least."""


@dataclass(slots=True)
class _Beats:
    """A peer's beats of late, by their numbers: those since `first`, and of those `before` how many came and were sent.

    Beats have been lost again and again since `lossy_ns`, the last time before number `gap`.
    """

    last: int = -1
    first: int = 0
    came: int = 0
    before: tuple[int, int] = (0, 0)
    gap: int | None = None
    lossy_ns: int = 0

    def take(self, number: int, now_ns: int) -> None:
        if number <= self.last:  # of another life of the peer
            self.first, self.came, self.before, self.gap = number, 0, (0, 0), None
        elif number > self.last + 1:
            if self.gap is None or number - self.gap > RECENT:
                self.lossy_ns = now_ns
            self.gap = number
        if number - self.first >= RECENT:
            self.before = self.came, number - self.first
            self.first, self.came = number, 0
        self.last = number
        self.came += 1

    @property
    def lost(self) -> float:
        """The share that was lost; none where nothing is known."""
        came, sent = self.came + self.before[0], self.last - self.first + 1 + self.before[1]
        return 1 - came / sent if 0 < came < sent else 0.0


class Heartbeats:
    """Sends this node's heartbeats, and tells who falls silent and who is heard again."""

    def __init__(
        self,
        node: NodeId,
        peers: Collection[NodeId],
        *,
        every_ns: int,
        misses: int,
        clock: Clock,
        transport: Transport,
        mailbox: Mailbox,
        gone: Callable[[NodeId], None],
        returned: Callable[[NodeId], None],
        still: Callable[[], bool] = lambda: False,
        epoch: int = 0,
    ) -> None:
        """Watch `peers`, each of which sends a heartbeat every `every_ns` too.

        `gone(peer)` and `returned(peer)` are called once per change. While `still()` holds (a paused
        node), nothing is sent and nobody is judged.
        """
        self.node, self.every_ns, self.misses, self.epoch = node, every_ns, misses, epoch
        self._clock, self._transport, self._still = clock, transport, still
        self._gone, self._returned = gone, returned
        self._heard_ns = dict.fromkeys(sorted(peers), 0)
        self._beats = {peer: _Beats() for peer in self._heard_ns}
        self.silent: set[NodeId] = set()
        mailbox.on(Kind.HEARTBEAT, self.hear)

    async def run(self) -> None:
        """Beat and watch for ever, from now on."""
        now = self._clock.now_ns()
        self._heard_ns = dict.fromkeys(self._heard_ns, now)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(now))
            for peer in self._heard_ns:
                group.create_task(self._beat(peer, now))

    def hear(self, message: Message) -> Fate:
        """Take a heartbeat."""
        peer = message.src
        if peer in self._heard_ns:
            now = self._heard_ns[peer] = self._clock.now_ns()
            beats = self._beats[peer]
            if self.epoch and beats.last < 0:
                beats.last = message.round  # those before it were sent when nobody was there to hear them
            beats.take(message.round, now)
            if peer in self.silent:
                beats.lossy_ns = now
                self.silent.discard(peer)
                self._returned(peer)
        return Fate.DELIVERED

    def may_call_gone(self, peer: NodeId, since_ns: int) -> bool:
        """Whether `peer` may yet be called gone for a reason that a wait since `since_ns` met too.

        A beat of it is overdue, or the wait is younger than it takes to judge. Where beats are lost, that is the time
        in which `misses` losses in a row are to be expected, up to `MOST_BEATS` beats; it counts from when beats began
        to be lost, or the peer was heard again, where that is later than the wait.
        """
        if peer not in self._heard_ns or peer in self.silent:
            return False
        now = self._clock.now_ns()
        overdue = now - self._heard_ns[peer] > self.every_ns * 3 // 2
        chance = AVERAGES * self._beats_until_missed(peer)
        since_ns = max(since_ns, self._beats[peer].lossy_ns) if chance else since_ns
        return overdue or now - since_ns <= self.every_ns * (self.misses + 1 + chance)

    def _beats_until_missed(self, peer: NodeId) -> int:
        """After how many beats `misses` in a row are lost by chance, on average; 0 where that hardly ever happens."""
        lost = self._beats[peer].lost
        in_a_row = lost**self.misses
        if in_a_row * (1 - lost) * MOST_BEATS < 1 - in_a_row:
            return 0
        return int((1 / in_a_row - 1) / (1 - lost))

    async def _beat(self, peer: NodeId, begin_ns: int) -> None:
        """One peer's beats, apart from the others': a full queue to one must not silence this node for all."""
        number = 0
        while True:
            if not self._still():
                id = MessageId(Kind.HEARTBEAT, self.epoch, StepId(number, 0), 0, 0)
                await self._transport.send([Multicast(self.node, (peer,), id, (Payload(),))])
            number += 1
            await self._clock.sleep_until(begin_ns + number * self.every_ns)

    async def _watch(self, begin_ns: int) -> None:
        number = 0
        while True:
            number += 1
            await self._clock.sleep_until(begin_ns + number * self.every_ns)
            now = self._clock.now_ns()
            if self._still():
                self._heard_ns = dict.fromkeys(self._heard_ns, now)
            for peer, heard_ns in self._heard_ns.items():
                if peer not in self.silent and now - heard_ns > self.misses * self.every_ns:
                    self.silent.add(peer)
                    self._gone(peer)
