"""What a port without TLS makes of connections that have ended, where its server is too slow to answer in time."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from netdfl.transport.security.departures import _OPENING, DepartureMonitor, _departures
from tests.transport.grpc_fleet import until

GREETING = bytes(46)

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="only Linux tells of connections that ended")


class SlowServer:
    """Listens, and accepts, greets and ends connections when the test says so."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.refused: list[str] = []
        self.watch = DepartureMonitor(_departures(self.port), len(GREETING), self.refused.append)

    def accept(self) -> socket.socket:
        """The next connection, greeted, however late."""
        connection, _ = self.socket.accept()
        connection.sendall(GREETING)
        return connection

    async def told_of_a_stranger(self) -> None:
        """Whoever says something else, and waits for an answer, is told of, and is the only one."""
        with socket.create_connection(("127.0.0.1", self.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            self.accept().close()
            port = stranger.getsockname()[1]
        await until(lambda: bool(self.refused))
        (words,) = self.refused
        assert f"from 127.0.0.1, port {port}, ended before it spoke HTTP/2" in words


@pytest.fixture
async def slow() -> AsyncIterator[SlowServer]:
    server = SlowServer()
    yield server
    server.watch.close()
    server.socket.close()


@pytest.mark.parametrize("late_s", [0.0, 1.2])
async def test_a_caller_that_gave_a_slow_server_up_before_it_was_greeted_is_no_stranger(
    slow: SlowServer, late_s: float
) -> None:
    with socket.create_connection(("127.0.0.1", slow.port)) as caller:
        caller.sendall(_OPENING + bytes(48))
    await asyncio.sleep(late_s)
    slow.accept().close()
    await slow.told_of_a_stranger()


async def test_a_caller_that_gave_a_slow_server_up_when_it_was_greeted_is_no_stranger(slow: SlowServer) -> None:
    with socket.create_connection(("127.0.0.1", slow.port)) as caller:
        caller.sendall(_OPENING)
        connection = slow.accept()
        await asyncio.sleep(1.2)
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    await slow.told_of_a_stranger()


async def test_a_stranger_that_leaves_at_once_is_one(slow: SlowServer) -> None:
    caller = socket.create_connection(("127.0.0.1", slow.port))
    caller.sendall(bytes(500))
    connection = slow.accept()
    caller.close()  # with words that it has not read
    connection.close()
    await until(lambda: bool(slow.refused))
    assert "500 bytes came" in slow.refused[0]
