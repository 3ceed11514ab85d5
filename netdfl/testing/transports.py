"""The conformance suite of transports: behavior that all must have, on a real or virtual clock.

    @pytest.mark.parametrize("check", TRANSPORT_CHECKS)
    async def test_conformance(check):
        await check(my_fleet)

where `my_fleet(num_nodes, ledger)` is an async context manager that gives one connected `Transport`
per node, all reporting to `ledger`, over links that lose and delay nothing, and closes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from netdfl.core.outcome import Outcome
from netdfl.core.types import ITEM_BYTES, Array, Edge, Kind, Message, Multicast, NodeId, Payload, Scalar, unicasts
from netdfl.transport import wire
from netdfl.transport.base import Fate, Ledger, Transport

FleetFactory = Callable[[int, Ledger], AbstractAsyncContextManager[Sequence[Transport]]]
PATIENCE_S = 60.0


class LedgerRow(NamedTuple):
    """A stored report of a transport on one message whose fate (delivered, lost and so on) is known."""

    message: Message
    nbytes: int
    sent_ns: int
    arrived_ns: int | None
    fate: Fate


@dataclass(eq=False)
class KeptLedger:
    """A ledger that stores everything that transports report: sent messages, their fates, and refusals."""

    handed: list[Message] = field(default_factory=list)
    rows: list[LedgerRow] = field(default_factory=list)
    refusals: list[tuple[Edge | None, str, str]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def sent(self, multicast: Multicast, nbytes: int, at_ns: int) -> None:
        """Store the messages of `multicast`, one for each receiver, as sent."""
        self.handed += multicast.messages

    def settled(self, outcome: Outcome, payloads: Sequence[Payload]) -> None:
        """Store a row with the fate of each message in `outcome`."""
        edges, (kind, incarnation, (round, step), _, attempt), nbytes, sent_ns, arrived_ns, fate = outcome
        for (src, dst), payload in zip(edges, payloads, strict=True):
            message = Message(src, dst, kind, incarnation, round, step, attempt, payload)
            self.rows.append(LedgerRow(message, nbytes, sent_ns, arrived_ns, fate))
        self._changed.set()

    def refused(self, edge: Edge | None, reason: str, what: str) -> None:
        """Store that a receiver discarded an invalid message on `edge` (None: unknown), with reason and description."""
        self.refusals.append((edge, reason, what))
        self._changed.set()

    async def until_settled(self, count: int) -> None:
        """Return when the fates of `count` messages are known. Raises TimeoutError after a minute."""
        await _until(self._changed, self.rows, count)

    async def until_refused(self, count: int) -> None:
        """Return when receivers have refused `count` messages. Raises TimeoutError after a minute."""
        await _until(self._changed, self.refusals, count)


@dataclass(eq=False)
class KeptSink:
    """A mailbox that stores up to `capacity` messages; None: any number."""

    capacity: int | None = None
    messages: list[Message] = field(default_factory=list)
    _callbacks: list[Callable[[], None]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate | None]:
        """Accept messages up to the capacity; return the fate of each, or None for one whose sender must wait for room.

        Raises TypeError for a single message that is not in a list.
        """
        if isinstance(messages, Message):
            raise TypeError("a sink takes all that comes at one instant: `fates = sink.deliver([message])`")
        room = len(messages) if self.capacity is None else max(0, self.capacity - len(self.messages))
        taken = messages[:room]
        self.messages += taken
        self._changed.set()
        return [*[Fate.DELIVERED] * len(taken), *[None] * (len(messages) - len(taken))]

    def when_room(self, callback: Callable[[], None]) -> None:
        """Store `callback`, which `make_room` will call."""
        self._callbacks.append(callback)
        self._changed.set()

    def make_room(self) -> None:
        """Remove the limit to the number of messages, and call the stored callbacks of waiting transports."""
        self.capacity = None
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            asyncio.get_running_loop().call_soon(callback)

    async def until(self, count: int) -> None:
        """Return when `count` messages have arrived. Raises TimeoutError after a minute."""
        await _until(self._changed, self.messages, count)

    async def until_waiting(self, count: int = 1) -> None:
        """Return when transports have asked `count` times to be called back. Raises TimeoutError after a minute."""
        await _until(self._changed, self._callbacks, count)


async def _until(changed: asyncio.Event, kept: Sequence[object], count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(kept) < count:
            changed.clear()
            await changed.wait()


def vector_payload(values: np.ndarray[Any, Any], meta: Mapping[str, Scalar] | None = None) -> Payload:
    """Return a payload with a copy of one numpy array, under the name `x`."""
    data = memoryview(values.tobytes())
    return Payload({"x": Array(values.dtype.name, values.shape, data)}, meta or {})


def data_message(edge: Edge, round: int, payload: Payload) -> Message:
    """Return a data message with `payload` in the first step of `round`, from a node that never restarted."""
    return Message(edge[0], edge[1], Kind.DATA, 0, round, 0, 0, payload)


def contents(payload: Payload) -> tuple[dict[str, tuple[str, tuple[int, ...], bytes]], Mapping[str, Scalar]]:
    """Return a message payload's arrays and metadata as plain values, which are equal if the contents are."""
    arrays = {name: (array.dtype, tuple(array.shape), bytes(array.data)) for name, array in payload.arrays.items()}
    return arrays, dict(payload.meta)


async def keeps_order_per_edge(fleet: FleetFactory) -> None:
    """Check that data messages on one edge arrive once, in order of sending and unchanged, at any size."""
    sizes = [0, 1, 1000, 300_000, 10, 400_000, 2]
    rounds = range(4 * len(sizes))
    async with _attached(fleet, 3) as (transports, sinks, ledger):
        edges = [(src, dst) for src in range(3) for dst in range(3) if src != dst]
        payloads = {
            (src, t): vector_payload(np.full(sizes[t % len(sizes)], src + t, np.float32))
            for src in range(3)
            for t in rounds
        }
        for t in rounds:
            for src in range(3):
                await transports[src].send(
                    unicasts([data_message(e, t, payloads[src, t]) for e in edges if e[0] == src])
                )
        await ledger.until_settled(len(edges) * len(rounds))
        for src, dst in edges:
            came = [m for m in sinks[dst].messages if m.src == src]
            assert [m.round for m in came] == list(rounds), f"edge {src}->{dst} is out of order or lost messages"
            for m in came:
                assert contents(m.payload) == contents(payloads[src, m.round])
        assert {row.fate for row in ledger.rows} == {Fate.DELIVERED}


async def keeps_every_field(fleet: FleetFactory) -> None:
    """Check that a message's kind, round and other numbers, dtypes, shapes and nested metadata arrive unchanged."""
    meta: dict[str, Scalar] = {"w": 0.1, "n": -(2**40), "s": "é", "on": True, "none": None, "l": [1, {"a": [2.5]}]}
    arrays = {
        f"{dtype}-{shape}": Array(dtype, shape, memoryview(bytes(ITEM_BYTES[dtype] * int(np.prod(shape)))))
        for dtype in ITEM_BYTES
        for shape in ((), (0,), (3,), (2, 5))
    }
    async with _attached(fleet, 2) as (transports, sinks, _):
        sent = [Message(0, 1, kind, 0, -1 + i, i, 2 * i, Payload(arrays, meta)) for i, kind in enumerate(Kind)]
        await transports[0].send(unicasts(sent))
        await sinks[1].until(len(sent))
        came = sorted(sinks[1].messages, key=lambda m: m.step)
        for before, after in zip(sent, came, strict=True):
            assert _numbers(before) == _numbers(after)
            assert contents(before.payload) == contents(after.payload)


async def payloads_are_immutable(fleet: FleetFactory) -> None:
    """Check that a vector changed after `send` arrives as it was, and that the arrived array is read-only."""
    vector = np.arange(1000, dtype=np.float32)
    before = vector.tobytes()
    payload = vector_payload(vector)
    async with _attached(fleet, 3) as (transports, sinks, _):
        await transports[0].send([Multicast(0, (1, 2), data_message((0, 1), 0, payload).id, (payload, payload))])
        vector[:] = -1
        for sink in sinks[1:]:
            await sink.until(1)
            array = sink.messages[0].payload.arrays["x"]
            assert bytes(array.data) == before
            assert array.data.readonly, "the receiver could write to a payload that others share"


async def writes_one_exact_row_per_message(fleet: FleetFactory) -> None:
    """Check that each message is reported once when sent and once when its fate is known, with its exact size."""
    async with _attached(fleet, 3) as (transports, _, ledger):
        sent = [data_message((0, 1 + i % 2), i, vector_payload(np.ones(37 * i, np.float16))) for i in range(20)]
        await transports[0].send(unicasts(sent))
        await ledger.until_settled(len(sent))
        assert ledger.handed == sent
        assert sorted(row.message.round for row in ledger.rows) == list(range(20))
        for row in ledger.rows:
            assert row.nbytes == len(wire.encode(row.message, bytes(8), 0))
            assert row.arrived_ns is not None
            assert row.sent_ns <= row.arrived_ns


async def full_mailbox_slows_the_sender(fleet: FleetFactory) -> None:
    """Check that a sender waits while the receiver's mailbox is full, and that no message is lost."""
    most = 4096
    sink = KeptSink(capacity=1)
    async with _attached(fleet, 3, {1: sink}) as (transports, sinks, _):
        payload = vector_payload(np.zeros(1000))
        handed = 0
        try:
            for t in range(most):
                async with asyncio.timeout(1):
                    await transports[0].send(unicasts([data_message((0, 1), t, payload)]))
                handed += 1
        except TimeoutError:
            pass
        assert handed < most, f"{most} messages were taken for a mailbox that holds 1"
        assert len(sink.messages) == 1
        await transports[0].send(unicasts([data_message((0, 2), 0, payload)]))
        await sinks[2].until(1)
        sink.make_room()
        await sink.until(handed)
        assert [m.round for m in sink.messages] == list(range(handed))


async def close_settles_what_is_in_flight(fleet: FleetFactory) -> None:
    """Check that, once transports are closed, every sent message was reported with exactly one fate."""
    async with _attached(fleet, 2, {1: KeptSink(capacity=1)}) as (transports, _, ledger):
        await transports[0].send(unicasts([data_message((0, 1), t, vector_payload(np.zeros(9))) for t in range(4)]))
        await ledger.until_settled(1)
        await transports[0].aclose()
        fates = {row.message.round: row.fate for row in ledger.rows}
        assert len(ledger.rows) == 4
        assert fates == {0: Fate.DELIVERED, 1: Fate.IN_FLIGHT, 2: Fate.IN_FLIGHT, 3: Fate.IN_FLIGHT}


TRANSPORT_CHECKS: tuple[Callable[[FleetFactory], Awaitable[None]], ...] = (
    keeps_order_per_edge,
    keeps_every_field,
    payloads_are_immutable,
    writes_one_exact_row_per_message,
    full_mailbox_slows_the_sender,
    close_settles_what_is_in_flight,
)


@asynccontextmanager
async def _attached(
    fleet: FleetFactory, num_nodes: int, given: Mapping[NodeId, KeptSink] | None = None
) -> AsyncIterator[tuple[Sequence[Transport], list[KeptSink], KeptLedger]]:
    ledger = KeptLedger()
    sinks = [(given or {}).get(node) or KeptSink() for node in range(num_nodes)]
    async with fleet(num_nodes, ledger) as transports:
        for transport, sink in zip(transports, sinks, strict=True):
            transport.attach(sink)
        yield transports, sinks, ledger


def _numbers(message: Message) -> tuple[object, ...]:
    return message.src, message.dst, message.kind, message.epoch, message.round, message.step, message.attempt
