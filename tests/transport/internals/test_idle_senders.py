"""Idle senders end, and nothing is left when all have left."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest

from netdfl.core.types import unicasts
from netdfl.testing.transports import KeptLedger, KeptSink, data_message
from tests.transport.bare_client import HELLO
from tests.transport.grpc_fleet import until
from tests.transport.grpc_processes import SMALL, attach_all, crossing, fleet_in_processes, send_all


async def test_idle_senders_end_and_open_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdfl.transport.grpc.transport.IDLE_NS", 0)
    ledger = KeptLedger()
    async with fleet_in_processes(4, ledger) as transports:
        attach_all(transports)
        transports[3].attach(full := KeptSink(capacity=0))
        for round in range(3):
            await transports[0].send(unicasts([data_message((0, 3), round, SMALL)]))
            await transports[0].send(unicasts([data_message((0, 2), round, SMALL)]))
            await ledger.until_settled(round + 1)
            transports[0]._close_idle()
            assert set(transports[0]._senders) == {3}
        full.make_room()
        await ledger.until_settled(6)
    assert {row.fate.text for row in ledger.rows} == {"delivered"}
    assert [row.message.round for row in ledger.rows if row.message.dst == 3] == [0, 1, 2]


async def test_nothing_is_left_when_all_have_left() -> None:
    async with fleet_in_processes(4, KeptLedger()) as transports:
        attach_all(transports[:2])
        await send_all(transports, crossing(0, 2))
        shared = transports[0]._shared
    assert shared.messages._open == shared.heartbeats._open == {}
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    async with grpc.aio.insecure_channel(transports[0].address) as stranger:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stranger.unary_unary(HELLO)(b"")
    assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
