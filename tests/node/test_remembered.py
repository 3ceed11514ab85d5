"""What a node remembers over a restart: nothing is read twice, and acknowledgements wait for the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import torch

from netdfl.core.clock import RealClock
from netdfl.core.types import Kind, Message, Multicast, Payload, messages_of, unicasts
from netdfl.mixing.payloads import mass, pack, vector
from netdfl.node.checkpoint import load_state, save_state
from netdfl.node.delivery import AcknowledgingTransport, ResendPolicy
from netdfl.node.mailbox import Mailbox
from netdfl.node.remembered import Remembered, durable, recall, remember
from netdfl.transport.base import Fate, Sink, deliver_one


class Wire:
    """A transport that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def attach(self, sink: Sink) -> None:
        self.sink = sink

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        self.sent += messages_of(multicasts)

    async def aclose(self) -> None: ...


class Living:
    """As much of a node as remembering needs."""

    def __init__(self, epoch: int) -> None:
        self.id, self.wire, self.mailbox = 0, Wire(), Mailbox(keep_late=True)
        self.delivery = AcknowledgingTransport(0, epoch, self.wire, RealClock(), ResendPolicy(timeout_ns=10**12))  # type: ignore[arg-type]
        self.delivery.keeps = True
        self.delivery.attach(self.mailbox)

    def leave_out(self, left_out: object) -> None: ...

    @property
    def acks(self) -> list[tuple[int, int, bool]]:
        acks = [m for m in self.wire.sent if m.kind is Kind.ACK]
        return [(m.dst, m.round, bool(m.payload.meta["taken"])) for m in acks]


def data(src: int, dst: int, round: int, epoch: int = 0) -> Message:
    payload = pack(torch.arange(3.0) + round, meta={"w": 0.25})
    return Message(src, dst, Kind.DATA, epoch, round, 0, 0, payload)


async def settle() -> None:
    """Let everything run that waits for nothing but its turn."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_acknowledgement_waits_until_what_it_is_about_is_durable() -> None:
    node = Living(0)
    assert deliver_one(node.wire.sink, data(1, 0, 0)) is Fate.DELIVERED
    assert deliver_one(node.wire.sink, data(2, 0, 1)) is Fate.DELIVERED
    node.mailbox.close((0, 0))
    memory = remember(node)  # type: ignore[arg-type]
    await settle()
    assert node.acks == []
    durable(node, memory)  # type: ignore[arg-type]
    await settle()
    assert node.acks == [(1, 0, True)]  # what is early is not read yet
    deliver_one(node.wire.sink, data(1, 0, 0))
    await settle()
    assert node.acks == [(1, 0, True)] * 2
    node.delivery.close()


async def test_where_nothing_is_acknowledged_only_what_is_read_is_remembered() -> None:
    node = Living(0)
    deliver_one(node.mailbox, data(1, 0, 0))
    node.mailbox.close((0, 0))
    node.delivery = None  # type: ignore[assignment]
    memory = remember(node)  # type: ignore[arg-type]
    assert memory == Remembered({"0 0": 2}, (), (), -1, ())
    durable(node, memory)  # type: ignore[arg-type]
    later = Living(1)
    later.delivery = None  # type: ignore[assignment]
    recall(later, memory)  # type: ignore[arg-type]
    assert deliver_one(later.mailbox, data(1, 0, 0)) is Fate.DUPLICATE


async def test_a_later_life_reads_nothing_twice_and_goes_on_with_what_is_unacknowledged(tmp_path: Path) -> None:
    first = Living(0)
    await first.delivery.send(unicasts([data(0, 4, 0), data(0, 5, 0)]))
    deliver_one(first.wire.sink, Message(5, 0, Kind.ACK, 0, 0, 0, 0, Payload(meta={"taken": True, "epoch": 0})))
    first.delivery.take_acknowledged()
    deliver_one(first.wire.sink, data(1, 0, 0))
    first.mailbox.close((0, 0))
    save_state(remember(first), tmp_path / "memory")  # type: ignore[arg-type]
    first.delivery.close()

    second = Living(1)
    recall(second, load_state(tmp_path / "memory", Remembered()))  # type: ignore[arg-type]
    assert deliver_one(second.wire.sink, data(1, 0, 0)) is Fate.DUPLICATE
    assert deliver_one(second.wire.sink, data(2, 0, 0)) is Fate.DELIVERED
    await settle()
    assert second.acks == [(1, 0, True)]
    (kept,) = second.delivery.unacknowledged()
    assert (kept.dst, kept.round, kept.epoch) == (4, 0, 1)
    assert torch.equal(vector(kept, torch.zeros(3)), torch.arange(3.0))
    assert mass(kept, "w") == 0.25
    second.delivery.close()
