"""An answer that nobody awaits ends the stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np

from netdfl.core.types import Message, unicasts
from netdfl.testing.transports import KeptLedger, data_message, vector_payload
from netdfl.transport.base import Fate
from netdfl.transport.grpc.transport import GrpcTransport
from netdfl.transport.v1.data_pb2 import Receipt
from tests.transport.grpc_fleet import foreign_node, make, until

DELIVERED = Receipt(fate=Fate.DELIVERED.text, arrived_ns=7).SerializeToString()


def numbered(count: int, first: int = 0) -> list[Message]:
    return [data_message((0, 1), t, vector_payload(np.full(3000, t, np.float32))) for t in range(first, first + count)]


async def one_by_one(a: GrpcTransport, ledger: KeptLedger, messages: list[Message]) -> None:
    for message in messages:
        count = len(ledger.rows) + 1
        await a.send(unicasts([message]))
        await ledger.until_settled(count)


async def test_an_answer_that_nobody_awaits_ends_the_stream() -> None:
    ledger = KeptLedger()

    async def chatty(frames: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for _ in frames:
            yield DELIVERED
            yield DELIVERED

    a = make(0, ledger)
    await a.start()
    async with foreign_node(push=chatty) as address:
        a.set_peer(1, address)
        for t in range(3):
            await one_by_one(a, ledger, numbered(1, first=t))
            await until(lambda: a._senders[1][0]._stream is None)
        await a.aclose()
    assert [row.fate.text for row in ledger.rows] == ["delivered"] * 3
