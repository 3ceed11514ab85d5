"""Whose messages are acknowledged once they are durable, sender by sender; and a gate that nobody stands at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hand import HandClock, settle

from netdfl.core.types import Kind, Message, Multicast, Payload, messages_of
from netdfl.node.delivery import AcknowledgingTransport, ResendPolicy
from netdfl.node.pause import PauseGate
from netdfl.transport.base import Fate, deliver_one


class Ends:
    """The network at one end, and a mailbox that takes all at the other."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def attach(self, sink: object) -> None: ...

    async def send(self, multicasts: Sequence[Multicast]) -> None:
        self.sent += messages_of(multicasts)

    async def aclose(self) -> None: ...

    def deliver(self, messages: Sequence[Message]) -> Sequence[Fate]:
        return [Fate.DELIVERED] * len(messages)

    def when_room(self, callback: object) -> None: ...


@pytest.mark.parametrize(
    ("read", "acknowledged"),
    [
        ({}, set[tuple[int, int]]()),
        ({"4 0": 0b1}, {(0, 4)}),
        ({"4 0": 0b10}, {(1, 4)}),
        ({"4 0": 0b11, "5 0": 0b1}, {(0, 4), (1, 4), (0, 5)}),
        ({"4 1": 0b11, "40 0": 0b11}, set[tuple[int, int]]()),
    ],
)
async def test_what_is_durable_is_acknowledged_to_those_whose_bit_is_set(
    read: dict[str, int], acknowledged: set[tuple[int, int]]
) -> None:
    for first in (True, False):  # whether it is durable before it comes
        ends: Any = Ends()
        delivery = AcknowledgingTransport(9, 0, ends, HandClock(), ResendPolicy())
        delivery.attach(ends)
        delivery.keeps = True
        if first:
            delivery.saved(read)
        for src, round in ((0, 4), (1, 4), (0, 5), (1, 5)):
            assert deliver_one(delivery, Message(src, 9, Kind.DATA, 2, round, 0, 3, Payload())) is Fate.DELIVERED
        delivery.saved(read)
        await settle()
        assert {(m.dst, m.round) for m in ends.sent} == acknowledged
        assert len(ends.sent) == len(acknowledged)
        assert all(
            (m.kind, m.attempt, dict(m.payload.meta)) == (Kind.ACK, 3, {"taken": True, "epoch": 2}) for m in ends.sent
        )


async def test_a_gate_may_be_opened_where_nobody_stands_and_more_than_once() -> None:
    gate, steps = PauseGate(), list[int]()
    gate.open()

    async def walks() -> None:
        for step in range(3):
            steps.append(step)
            await asyncio.sleep(0)

    gate.close()
    task = asyncio.create_task(gate.run(walks()))
    await settle()
    assert (steps, gate.closed) == ([], True)
    gate.open()
    gate.open()
    await asyncio.wait_for(task, 5)
    gate.open()
    assert (steps, gate.closed) == ([0, 1, 2], False)
