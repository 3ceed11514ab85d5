"""A message on a stream that has ended goes over a new one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np

from netdfl.core.types import unicasts
from netdfl.testing.transports import KeptLedger, data_message, vector_payload
from netdfl.transport.base import Fate
from netdfl.transport.v1.data_pb2 import Receipt
from tests.transport.grpc_fleet import foreign_node, grpc_fleet, until

DELIVERED = Receipt(fate=Fate.DELIVERED.text).SerializeToString()


async def test_a_message_on_a_stream_that_has_ended_goes_over_a_new_one():
    ledger = KeptLedger()
    served: list[bytes] = []

    async def one(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        served.append(await anext(requests))
        yield DELIVERED

    async with foreign_node(push=one) as address, grpc_fleet(2, ledger) as (a, _):
        a.set_peer(1, address, epoch=1)
        for t in range(3):
            await a.send(unicasts([data_message((0, 1), t, vector_payload(np.zeros(5)))]))
            await ledger.until_settled(t + 1)
            await until(lambda: a._senders[1][0]._stream is None)
    assert [row.fate.text for row in ledger.rows] == ["delivered"] * 3
    assert len(served) == 3
