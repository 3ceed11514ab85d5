"""The guard of a port while one of its threads is held up, as on a busy machine: it calls no member a stranger."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from bare_client import HELLO, channel, proof, to
from grpc_fleet import RUN_ID, grpc_fleet, until

from netdfl.testing.transports import KeptLedger
from netdfl.transport import wire
from netdfl.transport.security import tls
from netdfl.transport.security.authority import Authority
from netdfl.transport.security.credentials import name_of
from netdfl.transport.security.visitors import connections_at
from netdfl.transport.v1.data_pb2 import HelloReply, HelloRequest

OURS = Authority.make(RUN_ID.hex())


class HeldListing:
    """Lists connections as the guard does. While `holds`, a thread of gRPC waits before it tells what it has listed."""

    def __init__(self) -> None:
        self.mine = threading.get_ident()
        self.holds = False
        self.held, self.released = threading.Event(), threading.Event()
        self.num_checks = 0

    def __call__(self, port: int) -> Iterator[Any]:
        listed = list(connections_at(port))
        if threading.get_ident() == self.mine:
            self.num_checks += 1
        elif self.holds:
            self.held.set()
            self.released.wait(60)
        return iter(listed)

    async def checked(self) -> None:
        """Return after two more checks: of these, the second began after this call."""
        enough = self.num_checks + 2
        await until(lambda: self.num_checks >= enough)


async def say_hello(opened: Any, node: int) -> bool:
    said = HelloRequest(
        protocol_version=wire.PROTOCOL_VERSION, run_id=RUN_ID, scenario_hash="abc", node=node, epoch=0, callee=0
    ).SerializeToString()
    return bool(HelloReply.FromString(await opened.unary_unary(HELLO)(said, timeout=60, metadata=to(0))).accepted)


async def test_a_member_that_left_while_another_was_noted_is_no_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    listing, ledger = HeldListing(), KeptLedger()
    monkeypatch.setattr(tls, "connections_at", listing)
    async with grpc_fleet(3, ledger, authority=OURS) as nodes:
        address, name = nodes[0].address, name_of(RUN_ID.hex(), 0)
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port))):  # says nothing, so that the checks go on
            await until(lambda: listing.num_checks > 0)
            async with channel(address, proof(OURS.issue(2, 0)), name) as second:
                async with channel(address, proof(OURS.issue(1, 0)), name) as first:
                    assert await say_hello(first, 1)
                    listing.holds = True
                    came = asyncio.ensure_future(say_hello(second, 2))
                    await until(listing.held.is_set)
                await listing.checked()
                listing.released.set()
                assert await came
                await listing.checked()
                assert ledger.refusals == []
