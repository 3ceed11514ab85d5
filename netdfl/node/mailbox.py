"""The mailbox: matches messages to the (round, step) that awaits them, each message once.

Early messages are kept within a bound; past it the transport is told to hold the message, which
pushes back on the sender. What the node waits for now is always taken, so the bound alone can't
stall a fleet. A late message is dropped and counted, unless it is mass (push-sum), which is kept
for the next exchange however late it comes, or young enough for an exchange that takes what is up to
`stale` rounds old. A sender that restarts and sends a round again sends
the same message: what was taken once is not taken twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from netdfl.core.types import Kind, Message, NodeId, StepId, as_step
from netdfl.transport.base import Fate

OnCame: TypeAlias = Callable[[StepId, Collection[NodeId]], None]
"""Told of a slot, and of whom messages for it have come just now."""
_DELIVERED = Fate.DELIVERED
_NO_STEP = StepId(-1, 0)
_NOBODY: frozenset[NodeId] = frozenset()
_NOTHING: Mapping[NodeId, Message] = {}


class _Bits(dict[NodeId, int]):
    """Which bit stands for whom, in the order in which they were first asked for."""

    def __missing__(self, src: NodeId) -> int:
        """The next one is for `src`."""
        bit = self[src] = 1 << len(self)
        return bit


class Mailbox:
    """The data messages of one node, sorted by (round, step) and sender. A `Sink`."""

    def __init__(self, *, keep_late: bool, stale: int = 0, bound: int = 1024) -> None:
        """`keep_late`: late messages are mass. `bound`: early messages kept before pushing back.

        `stale` is how many rounds older than the next exchange a late message may be and still be taken.
        """
        self.keep_late = keep_late
        self.stale = stale
        self.bound = bound
        self.late: list[Message] = []
        self.num_late = 0
        self.num_duplicates = 0
        self._slots: dict[StepId, dict[NodeId, Message]] = {}
        self._taken: dict[StepId, set[NodeId]] = {}
        self._closed: StepId = StepId(-1, 0)
        self._shut = False
        self._seen: dict[StepId, int] = {}  # the senders of each slot, as bits: a run has very many slots
        self._bits = _Bits()
        self._heard: dict[NodeId, int] = {}  # of those that somebody asks about
        self._size = 0
        self._waiters: list[Callable[[], None]] = []
        self._awaited: StepId = _NO_STEP
        self._on_awaited: OnCame | None = None
        self._on_late: Callable[[Message], None] | None = None
        self._other: dict[Kind, Callable[[Message], Fate]] = {}

    def on(self, kind: Kind, handler: Callable[[Message], Fate]) -> None:
        """Hand messages of `kind` to `handler` instead of keeping them."""
        self._other[kind] = handler

    def on_late(self, handler: Callable[[Message], None]) -> None:
        """Tell `handler` of every message whose round is over."""
        self._on_late = handler

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Take messages in this order and return each one's fate; None: the mailbox is full."""
        if len(messages) == 1:
            return [self._take(messages[0])]
        if messages and self._take_together(messages):
            return [_DELIVERED] * len(messages)
        return [self._take(message) for message in messages]

    def _take(self, message: Message) -> Fate | None:
        src, _, kind, _, round, step, _, _ = message
        if self._other and kind in self._other:
            return self._other[kind](message)
        slot = as_step((round, step))
        if self._shut and not self._has_seen(src, slot):
            return Fate.REFUSED
        if slot <= self._closed:
            return self._take_late(message)
        awaited = slot == self._awaited
        if self._size >= self.bound and not awaited:
            return None
        seen, bit = self._seen.get(slot, 0), self._bits[src]
        if seen & bit or src in self._heard:  # else as `_first_time`, without a call
            if not self._first_time(src, slot):
                return Fate.DUPLICATE
        else:
            self._seen[slot] = seen | bit
        kept = self._slots.get(slot)
        if kept is None:
            kept = self._slots[slot] = {}
        kept[src] = message
        self._size += 1
        if self._on_awaited is not None and (awaited or slot > self._awaited):
            self._on_awaited(slot, (src,))
        return _DELIVERED

    def _take_together(self, messages: Sequence[Message]) -> bool:
        """Take messages that are all for the awaited slot and each the first of its sender; others one by one.

        Most of what comes to a node at one instant is so: then one look at the slot does for all.
        """
        slot, on_awaited = self._awaited, self._on_awaited
        if on_awaited is None or slot <= self._closed or self._shut:
            return False
        awaited_round, awaited_step = slot
        for _, _, kind, _, round, step, _, _ in messages:
            if round != awaited_round or step != awaited_step or kind in self._other:
                return False
        came = {message.src: message for message in messages}
        senders = sum(map(self._bits.__getitem__, came))
        seen = self._seen.get(slot, 0)
        if len(came) < len(messages) or seen & senders:
            return False
        self._seen[slot] = seen | senders
        kept = self._slots.get(slot)
        if kept is None:
            self._slots[slot] = came
        else:
            kept |= came
        self._size += len(came)
        if self._heard:
            for src in self._heard.keys() & came:
                self._heard[src] += 1
        on_awaited(slot, came)
        return True

    def memory(self) -> dict[str, int]:
        """Whose messages have been read, by slot: what a later life must not take again."""
        read = dict(self._seen)
        for m in self.unread():
            read[m.at] &= ~self._bits[m.src]
        named = {slot: sum([1 << src for src, bit in self._bits.items() if bit & bits]) for slot, bits in read.items()}
        return {f"{round} {step}": senders for (round, step), senders in named.items() if senders}

    def unread(self) -> list[Message]:
        """What has come and nobody has taken yet."""
        return [m for kept in self._slots.values() for m in kept.values()] + self.late

    def remember(self, memory: Mapping[str, int]) -> None:
        """Take nothing that an earlier life has read, and count it where its slot is awaited again."""
        for slot, senders in memory.items():
            round, step = map(int, slot.split())
            named = [src for src in range(senders.bit_length()) if senders >> src & 1]
            self._taken[StepId(round, step)] = set(named)
            self._seen[StepId(round, step)] = sum(map(self._bits.__getitem__, named))

    def shut(self) -> None:
        """Refuse what has not come yet: its reader has gone home."""
        self._shut = True

    def _has_seen(self, src: NodeId, slot: StepId) -> bool:
        return bool(self._seen.get(slot, 0) & self._bits[src])

    def num_from(self, src: NodeId) -> int:
        """How many different messages of `src` have come since this was first asked."""
        return self._heard.setdefault(src, 0)

    def _first_time(self, src: NodeId, slot: StepId) -> bool:
        seen, bit = self._seen.get(slot, 0), self._bits[src]
        if seen & bit:
            self.num_duplicates += 1
            return False
        self._seen[slot] = seen | bit
        if self._heard and src in self._heard:
            self._heard[src] += 1
        return True

    def _take_late(self, message: Message) -> Fate:
        if not self._first_time(message.src, message.at):
            return Fate.DUPLICATE
        self.num_late += 1
        if self._on_late is not None:
            self._on_late(message)
        if not self._serves_late(message):
            return Fate.LATE
        self.late.append(message)
        return Fate.DELIVERED

    def _serves_late(self, message: Message) -> bool:
        """Whether the exchange that is awaited, or else the next round's, still takes a late message."""
        next_round = self._closed[0] + 1 if self._on_awaited is None else self._awaited[0]
        return self.keep_late or (self.stale > 0 and next_round - message.round <= self.stale)

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back once when a slot was emptied. See `Sink`."""
        self._waiters.append(callback)

    def open(self, slot: StepId, on_came: OnCame) -> Collection[NodeId]:
        """Await `slot`: whose messages came early, and `on_came` for what still comes, for it or for a later one."""
        self._awaited, self._on_awaited = slot, on_came
        if self._waiters:
            self._make_room()
        return self._slots.get(slot, _NOBODY)

    def close(self, slot: StepId) -> list[Message]:
        """Stop awaiting `slot` and take what came for it, as an `Inbox` takes it; whatever still comes is late."""
        self._awaited, self._on_awaited = _NO_STEP, None
        self._closed = max(self._closed, slot)
        taken = list(self._slots.pop(slot, _NOTHING).values())
        self._size -= len(taken)
        for stale in [s for s in self._slots if s <= self._closed] if self._slots else ():
            for message in self._slots.pop(stale).values():
                self._size -= 1
                self.num_late += 1
                if self._serves_late(message):
                    self.late.append(message)
        if self._taken:
            self._taken = {s: senders for s, senders in self._taken.items() if s > self._closed}
        if self._waiters:
            self._make_room()
        return taken

    def take_early(self, last: StepId) -> list[Message]:
        """What has come for slots up to `last` that nobody awaits yet, once; `taken` remembers of whom."""
        early: list[Message] = []
        for slot in sorted(s for s in self._slots if s <= last):
            messages = self._slots.pop(slot)
            self._taken.setdefault(slot, set()).update(messages)
            early += messages.values()
        self._size -= len(early)
        self._make_room()
        return early

    def taken(self, slot: StepId) -> frozenset[NodeId]:
        """Whose messages for `slot` were taken early."""
        return frozenset(self._taken[slot]) if slot in self._taken else _NOBODY

    def has(self, src: NodeId, slot: StepId) -> bool:
        """Whether the message of `src` for a slot that is not over is here, or was taken early."""
        return src in self._slots.get(slot, _NOTHING) or src in self._taken.get(slot, _NOBODY)

    def ahead(self, slot: StepId) -> frozenset[NodeId]:
        """Who has sent something for a later slot already."""
        later = [messages for awaited, messages in self._slots.items() if awaited > slot]
        return _NOBODY.union(*later) if later else _NOBODY

    def is_over(self, slot: StepId) -> bool:
        """Whether what comes for `slot` is late."""
        return slot <= self._closed

    def take_late(self) -> list[Message]:
        """The late messages that the next exchange takes, once."""
        late, self.late = self.late, []
        return late

    def _make_room(self) -> None:
        waiters, self._waiters = self._waiters, []
        for callback in waiters:
            callback()

    @property
    def num_kept(self) -> int:
        """Early messages kept now."""
        return self._size
