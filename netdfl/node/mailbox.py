"""The mailbox of a node: it keeps each arriving message for the step that awaits it, and takes each message once.

A message meets one of four cases, by the step that it is for:

- the awaited step: it is always taken, so a full mailbox by itself can't stall a fleet;
- a later step: it is kept, within a bound of messages, and one of bytes for each sender. Beyond the bound the transport
  must hold it, and its sender must wait;
- a step that is over: it is late. It is dropped, unless the next exchange can still use it: push-sum mass,
  however old, or a message that is at most `stale` rounds old. Those have a bound of bytes, too;
- any step, a second time: it is a duplicate. A sender that restarts sends its round again, and those messages are the
  same ones. So the mailbox remembers the senders of each step for the whole run, as bits of one integer for each step.

    comes ──seen before──▶ duplicate: refused
      └─ new ──its step is over──▶ late: dropped, or kept for the next exchange
          ├─ its step is awaited, or to come and there is room──▶ unread ──the step closes──▶ read
          └─ its step is to come and there is no room──▶ not taken: offered again

Messages that belong to no step (heartbeats, queries, requests) go to handlers.

Relies on: steps that are ordered in time, and messages that are equal if sender and step are equal: a restarted sender
repeats them.

Why: A queue would give messages in the order of their arrival, and sums would differ between worlds. The return value
of `deliver` is the whole of flow control, without a task or a wake-up per message. Messages of one instant are taken in
one look at their step (`_take_together`), since most are what the node waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from netdfl.core.types import Kind, Message, NodeId, StepId, as_step
from netdfl.node.shares import weight_alone
from netdfl.transport.base import Fate

OnMessages: TypeAlias = Callable[[StepId, Collection[NodeId]], None]
"""A function that the mailbox calls when messages arrive, with their step and their senders."""
_DELIVERED = Fate.DELIVERED
_NO_STEP = StepId(-1, 0)
_NOBODY: frozenset[NodeId] = frozenset()
_NOTHING: Mapping[NodeId, Message] = {}


class _Bits(dict[NodeId, int]):
    """One bit for each sender, assigned in the order of their first messages, so an integer is a set of senders."""

    def __missing__(self, src: NodeId) -> int:
        """Assign the next free bit to `src`."""
        bit = self[src] = 1 << len(self)
        return bit


class Mailbox:
    """The received data messages of one node, by step and sender; its transport delivers messages into it."""

    def __init__(
        self, *, keep_late: bool, stale: int = 0, bound: int = 1024, peer_bytes: int = 0, late_bytes: int = 0
    ) -> None:
        """Start empty.

        Args:
            keep_late: whether late messages carry push-sum mass and so are kept for the next exchange.
            stale: how many rounds older than the next exchange a late message may be and still be taken.
            bound: how many unread messages are kept before senders must wait.
            peer_bytes: how many bytes are kept of one sender's messages for steps that the node does not await yet;
                0: any number. The transport must hold further ones, and their sender waits; a single one always fits.
            late_bytes: how many bytes of late messages are kept; 0: any number.
        """
        self.peer_bytes, self.late_bytes = peer_bytes, late_bytes
        self._early: dict[NodeId, int] = {}  # bytes of messages that came before they were awaited, by sender
        self._late_bytes = 0
        self.keep_late = keep_late
        self.stale = stale
        self.bound = bound
        self.late: list[Message] = []
        self._unread: dict[StepId, dict[NodeId, Message]] = {}
        self._taken: dict[StepId, set[NodeId]] = {}
        self._closed: StepId = StepId(-1, 0)
        self._shut = self._has_finished = False
        self._seen: dict[StepId, int] = {}  # the senders of each step, as bits: a run has very many steps
        self._bits = _Bits()
        self._heard: dict[NodeId, int] = {}  # number of messages, only of senders that `num_from` was asked about
        self._size = 0
        self._waiters: list[Callable[[], None]] = []
        self._awaited: StepId = _NO_STEP
        self._on_awaited: OnMessages | None = None
        self._on_late: Callable[[Message], None] | None = None
        self._other: dict[Kind, Callable[[Message], Fate | None]] = {}

    def on(self, kind: Kind, handler: Callable[[Message], Fate | None]) -> None:
        """Pass messages of `kind` to `handler` instead of storing them.

        The handler returns the fate of a message, or None to make its sender wait.
        """
        self._other[kind] = handler

    def handles(self, kind: Kind) -> bool:
        """Return whether messages of `kind` go to a handler."""
        return kind in self._other

    def on_late(self, handler: Callable[[Message], None]) -> None:
        """Call `handler` with each message whose step is over."""
        self._on_late = handler

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Accept arriving messages in this order; return the fate of each (such as delivered, duplicate or late).

        None: there is no room for this message, and it must be offered again.
        """
        if len(messages) == 1:
            return [self._take(messages[0])]
        if messages and self._take_together(messages):
            return [_DELIVERED] * len(messages)
        return [self._take(message) for message in messages]

    def _take(self, message: Message) -> Fate | None:
        src, _, kind, _, round, step, _, _ = message
        if self._other and kind in self._other:
            return self._other[kind](message)
        step_id = as_step((round, step))
        if self._shut and not self.has_seen(src, step_id):
            return Fate.REFUSED
        if step_id <= self._closed:
            return self._take_late(message)
        awaited = step_id == self._awaited
        if not awaited and (self._size >= self.bound or (self.peer_bytes and self._is_too_much(message))):
            return None
        seen, bit = self._seen.get(step_id, 0), self._bits[src]
        if seen & bit or src in self._heard:  # else as `_first_time`, without a call
            if not self._first_time(src, step_id):
                return Fate.DUPLICATE
        else:
            self._seen[step_id] = seen | bit
        kept = self._unread.get(step_id)
        if kept is None:
            kept = self._unread[step_id] = {}
        kept[src] = message
        self._size += 1
        if self.peer_bytes and not awaited:
            self._early[src] = self._early.get(src, 0) + self._memory_of(message)
        if self._on_awaited is not None and (awaited or step_id > self._awaited):
            self._on_awaited(step_id, (src,))
        return _DELIVERED

    def _is_too_much(self, message: Message) -> bool:
        """Return whether a message for a later step exceeds its sender's limit for such messages, `peer_bytes`.

        A sender's only such message never exceeds it, nor does a duplicate.
        """
        held = self._early.get(message.src, 0)
        beyond = held > 0 and held + self._memory_of(message) > self.peer_bytes
        return beyond and not self.has_seen(message.src, message.at)

    @staticmethod
    def _memory_of(message: Message) -> int:
        return message.payload.memory(message.payload.size or 0)

    def _no_longer_early(self, messages: Collection[Message]) -> None:
        """Subtract messages from their senders' bytes of early messages, because they are awaited now or were read."""
        for message in messages:
            left = self._early.get(message.src, 0) - self._memory_of(message)
            if left > 0:
                self._early[message.src] = left
            else:
                self._early.pop(message.src, None)

    def _take_together(self, messages: Sequence[Message]) -> bool:
        """Accept all messages at once if they are for the awaited step, and each is the first one of its sender for it.

        Return whether they were accepted. Most messages that reach a node at one instant are like this, so one look-up
        of the step is enough for all.
        """
        step_id, on_awaited = self._awaited, self._on_awaited
        if on_awaited is None or step_id <= self._closed or self._shut:
            return False
        awaited_round, awaited_step = step_id
        for message in messages:
            if message.round != awaited_round or message.step != awaited_step or message.kind in self._other:
                return False
        came = {message.src: message for message in messages}
        senders = sum(map(self._bits.__getitem__, came))
        seen = self._seen.get(step_id, 0)
        if len(came) < len(messages) or seen & senders:
            return False
        self._seen[step_id] = seen | senders
        kept = self._unread.get(step_id)
        if kept is None:
            self._unread[step_id] = came
        else:
            kept |= came
        self._size += len(came)
        if self._heard:
            for src in self._heard.keys() & came:
                self._heard[src] += 1
        on_awaited(step_id, came)
        return True

    def memory(self) -> dict[str, int]:
        """Return the senders whose messages have been read, as one bit set (an integer) for each step.

        After a restart, the node uses it to refuse these messages.
        """
        read = dict(self._seen)
        for m in self.unread():
            read[m.at] &= ~self._bits[m.src]
        named = {
            step_id: sum([1 << src for src, bit in self._bits.items() if bit & bits]) for step_id, bits in read.items()
        }
        return {f"{round} {step}": senders for (round, step), senders in named.items() if senders}

    def unread(self) -> list[Message]:
        """Return the messages that have arrived and are not read yet."""
        return [m for kept in self._unread.values() for m in kept.values()] + self.late

    def remember(self, memory: Mapping[str, int]) -> None:
        """Refuse, as duplicates, the messages that the node read before its restart, which `memory` names.

        If the node waits for their step again, it does not wait for these senders.
        """
        for step_id, senders in memory.items():
            round, step = map(int, step_id.split())
            named = [src for src in range(senders.bit_length()) if senders >> src & 1]
            self._taken[StepId(round, step)] = set(named)
            self._seen[StepId(round, step)] = sum(map(self._bits.__getitem__, named))

    def shut(self) -> None:
        """Refuse new messages, because the node has finished and will read no others."""
        self._shut = True

    def finish(self) -> None:
        """Note that the node has finished reading.

        From now on only the push-sum weights of late messages are stored, without their vectors.
        """
        self._has_finished = self.late_bytes > 0
        self._late_bytes = 0

    def has_seen(self, src: NodeId, step_id: StepId) -> bool:
        """Return whether a message of `src` for `step_id` (a round and an exchange in it) has ever come."""
        return bool(self._seen.get(step_id, 0) & self._bits[src])

    def num_from(self, src: NodeId) -> int:
        """Return how many different messages of `src` have come since this method was first called for `src`."""
        return self._heard.setdefault(src, 0)

    def _first_time(self, src: NodeId, step_id: StepId) -> bool:
        seen, bit = self._seen.get(step_id, 0), self._bits[src]
        if seen & bit:
            return False
        self._seen[step_id] = seen | bit
        if self._heard and src in self._heard:
            self._heard[src] += 1
        return True

    def _take_late(self, message: Message) -> Fate | None:
        nbytes = self._memory_of(message) if self.late_bytes else 0
        if self._late_bytes and self._late_bytes + nbytes > self.late_bytes:
            if not self.has_seen(message.src, message.at) and self._serves_late(message):
                return None
        if not self._first_time(message.src, message.at):
            return Fate.DUPLICATE
        if self._on_late is not None:
            self._on_late(message)
        if not self._serves_late(message):
            return Fate.LATE
        if self._has_finished:
            message = message._replace(payload=weight_alone(message.payload))
        else:
            self._late_bytes += nbytes
        self.late.append(message)
        return Fate.DELIVERED

    def _serves_late(self, message: Message) -> bool:
        """Return whether the awaited exchange, or the next round's if none is awaited, still uses a late message."""
        next_round = self._closed[0] + 1 if self._on_awaited is None else self._awaited[0]
        return self.keep_late or (self.stale > 0 and next_round - message.round <= self.stale)

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the mailbox has room for messages again."""
        self._waiters.append(callback)

    def open(self, step_id: StepId, on_came: OnMessages) -> Collection[NodeId]:
        """Begin to await the messages of `step_id` (round, exchange); return the senders whose messages have come.

        `on_came` is called when messages for this step or for a later one come.
        """
        self._awaited, self._on_awaited = step_id, on_came
        if self._early and step_id in self._unread:
            self._no_longer_early(self._unread[step_id].values())
        if self._waiters:
            self.make_room()
        return self._unread.get(step_id, _NOBODY)

    def close(self, step_id: StepId) -> list[Message]:
        """End step `step_id`: return the messages that came for it; a message that comes for it later is late."""
        self._awaited, self._on_awaited = _NO_STEP, None
        self._closed = max(self._closed, step_id)
        taken = list(self._unread.pop(step_id, _NOTHING).values())
        self._size -= len(taken)
        for stale in [s for s in self._unread if s <= self._closed] if self._unread else ():
            passed = self._unread.pop(stale)
            self._no_longer_early(passed.values() if self._early else ())
            self._size -= len(passed)
            self.late += [message for message in passed.values() if self._serves_late(message)]
        if self._taken:
            self._taken = {s: senders for s, senders in self._taken.items() if s > self._closed}
        if self._waiters:
            self.make_room()
        return taken

    def take_early(self, last: StepId) -> list[Message]:
        """Return the messages that have come for steps up to `last` although the node has not waited for them yet.

        Each is returned once; from then on `taken` names their senders.
        """
        early: list[Message] = []
        for step_id in sorted(s for s in self._unread if s <= last):
            messages = self._unread.pop(step_id)
            self._taken.setdefault(step_id, set()).update(messages)
            early += messages.values()
            self._no_longer_early(messages.values() if self._early else ())
        self._size -= len(early)
        self.make_room()
        return early

    def taken(self, step_id: StepId) -> frozenset[NodeId]:
        """Return the senders whose messages for `step_id` were handed out early, by `take_early`."""
        return frozenset(self._taken[step_id]) if step_id in self._taken else _NOBODY

    def has(self, src: NodeId, step_id: StepId) -> bool:
        """Return whether the message of `src` for `step_id` (not over) has come, even if `take_early` returned it."""
        return src in self._unread.get(step_id, _NOTHING) or src in self._taken.get(step_id, _NOBODY)

    def ahead(self, step_id: StepId) -> frozenset[NodeId]:
        """Return the senders of messages for steps later than `step_id`."""
        later = [messages for awaited, messages in self._unread.items() if awaited > step_id]
        return _NOBODY.union(*later) if later else _NOBODY

    def is_over(self, step_id: StepId) -> bool:
        """Return whether `step_id` is over, so that a message for it is late."""
        return step_id <= self._closed

    def take_late(self) -> list[Message]:
        """Return the late messages that the next exchange still uses, each once."""
        late, self.late = self.late, []
        if self._late_bytes:
            self._late_bytes = 0
            self.make_room()
        return late

    def make_room(self) -> None:
        """Call back the senders that wait for room, so that they offer their messages again."""
        waiters, self._waiters = self._waiters, []
        for callback in waiters:
            callback()

    @property
    def is_full(self) -> bool:
        """Whether the mailbox has as many unread messages as it keeps, or messages wait to be offered again."""
        return self._size >= self.bound or bool(self._waiters)

    @property
    def num_kept(self) -> int:
        """Number of messages that are kept and not read yet, without late ones."""
        return self._size
