"""A failure detector of the nodes: each node sends heartbeats over the links and counts the missed ones of its peers.

A node is called gone after `misses` heartbeats in a row have not come, and returned when it is heard again. Heartbeats
share the links with all other messages, so the detector errs as real ones do: it calls a live node behind a broken
link gone.

    present ──`misses` heartbeats in a row have not come──▶ gone ──heard again──▶ present

Relies on: timers of the node's clock, and links that carry heartbeats with the loss and delay of any message.

Why: A detector that the launcher tells the truth would hide the errors that algorithms must tolerate; such a detector
exists too, as `oracle`, and the run's result names it. Heartbeats are counted separately, because they continue in a
deadlock and would look like progress.
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
"""Limit in heartbeats: if `misses` losses in a row are expected only after more, they count as never occurring."""
AVERAGES = 5
"""A wait may last this many times the expected time until `misses` losses in a row: all but one in 150 end by then."""
RECENT = 100
"""The fewest beats from which the share of lost ones is computed."""


@dataclass(slots=True)
class _Beats:
    """The heartbeats that have come from one peer, counted in windows, from which the share of lost ones is estimated.

    Attributes:
        last: the number of the latest heartbeat.
        first: the number of the first heartbeat of the present window.
        came: how many heartbeats of this window came.
        before: how many heartbeats of the window before came, and how many were sent.
        gap: the number of the heartbeat that showed the latest loss; None before any.
        lossy_ns: since when losses have followed each other within `RECENT` heartbeats.
    """

    last: int = -1
    first: int = 0
    came: int = 0
    before: tuple[int, int] = (0, 0)
    gap: int | None = None
    lossy_ns: int = 0

    def take(self, number: int, now_ns: int) -> None:
        if number <= self.last:  # the peer restarted, and numbers its heartbeats anew
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
        """The share of heartbeats that were lost; 0 if no loss is known."""
        came, sent = self.came + self.before[0], self.last - self.first + 1 + self.before[1]
        return 1 - came / sent if 0 < came < sent else 0.0


class Heartbeats:
    """The failure detector of one node: it sends heartbeats, and decides by its peers' heartbeats which are gone."""

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
        """Watch `peers`; all send a heartbeat every `every_ns`. A peer that missed `misses` in a row counts as gone.

        `gone(peer)` and `returned(peer)` are called once per change. While `still()` is true (the node is paused),
        no heartbeat is sent and no peer is judged. `epoch` counts the restarts of this node.
        """
        self.node, self.every_ns, self.misses, self.epoch = node, every_ns, misses, epoch
        self._clock, self._transport, self._still = clock, transport, still
        self._gone, self._returned = gone, returned
        self._heard_ns = dict.fromkeys(sorted(peers), 0)
        self._beats = {peer: _Beats() for peer in self._heard_ns}
        self.silent: set[NodeId] = set()
        mailbox.on(Kind.HEARTBEAT, self.hear)

    async def run(self) -> None:
        """Send heartbeats to the peers, and judge by theirs which peers are gone, until cancelled."""
        now = self._clock.now_ns()
        self._heard_ns = dict.fromkeys(self._heard_ns, now)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(now))
            for peer in self._heard_ns:
                group.create_task(self._beat(peer, now))

    def hear(self, message: Message) -> Fate:
        """Record a heartbeat of a peer."""
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
        """Return whether the detector may still end a wait for `peer`, begun at `since_ns`, by declaring `peer` gone.

        It may if a beat of `peer` is overdue, or if the wait is younger than the time that a judgment takes. Where
        beats are lost by chance, this is the time in which `misses` losses in a row are expected, up to `MOST_BEATS`
        beats. That time counts from the later of two instants: the beginning of the wait, and the moment when beats
        began to be lost or the peer was heard again.
        """
        if peer not in self._heard_ns or peer in self.silent:
            return False
        now = self._clock.now_ns()
        overdue = now - self._heard_ns[peer] > self.every_ns * 3 // 2
        chance = AVERAGES * self._beats_until_missed(peer)
        since_ns = max(since_ns, self._beats[peer].lossy_ns) if chance else since_ns
        return overdue or now - since_ns <= self.every_ns * (self.misses + 1 + chance)

    def _beats_until_missed(self, peer: NodeId) -> int:
        """Return the expected number of heartbeats until `misses` in a row get lost; 0 if above `MOST_BEATS`."""
        lost = self._beats[peer].lost
        in_a_row = lost**self.misses
        if in_a_row * (1 - lost) * MOST_BEATS < 1 - in_a_row:
            return 0
        return int((1 / in_a_row - 1) / (1 - lost))

    async def _beat(self, peer: NodeId, begin_ns: int) -> None:
        """Send a heartbeat to one peer every `every_ns` from `begin_ns` on.

        Each peer has a task of its own, so that a full queue to one peer delays no others.
        """
        number = 0
        while True:
            if not self._still():
                id = MessageId(Kind.HEARTBEAT, self.epoch, StepId(number, 0), 0, 0)
                await self._transport.send([Multicast(self.node, (peer,), id, (Payload(),))])
            number += 1
            await self._clock.sleep_until(begin_ns + number * self.every_ns)

    async def _watch(self, begin_ns: int) -> None:
        """From `begin_ns` on, check every `every_ns` which peers missed `misses` heartbeats, and call them gone."""
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
