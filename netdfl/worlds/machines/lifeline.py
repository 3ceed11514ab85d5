"""Lifelines: connections of fork servers to the supervisor, whose ends show that a machine or server is gone.

No data are sent on them. When the fork server's process ends, its system ends the connection at once. When the machine
itself vanishes, by a power cut or a cable, nobody ends anything: so the kernels probe each other every second, and the
connection ends when the other has not answered for some time. It is the kernel that answers, however busy the machine
is, and even if every process on it is stopped: a machine that is only slow keeps its connection.
The system that starts fork servers may report a machine's end too, but in its own time: Slurm after minutes, or never.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress

from netdfl.core.clock import NS_PER_S

CONNECT_S = 10.0
TOKEN_BYTES = 32
MACHINE_PATIENCE_S = 60
"""Seconds that a machine waits for the supervisor's machine: the supervisor decides who is gone."""
_TAKEN = b"+"


def ask_each_second(line: socket.socket, patience_s: int) -> None:
    """Make the kernel probe the other end every second, and close `line` after `patience_s` without an answer."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    values = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": patience_s, "TCP_USER_TIMEOUT": 1000 * patience_s}
    for name, value in values.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
            line.setsockopt(socket.IPPROTO_TCP, option, value)


def hold(host: str, port: int, token: str) -> socket.socket:
    """Connect this machine to the supervisor at `host` and `port`; if the connection ends, the other side is gone.

    `token` proves that the supervisor expects this machine. Raises OSError.
    """
    line = socket.create_connection((host, port), CONNECT_S)
    try:
        line.sendall(token.encode())
        if line.recv(1) != _TAKEN:
            raise ConnectionError("whoever listens there is not of this run")
        line.settimeout(None)
        ask_each_second(line, MACHINE_PATIENCE_S)
    except OSError:
        line.close()
        raise
    return line


class Lifeline:
    """The supervisor's end of one machine's connection. `why` gives the reason once the connection has `ended`."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        """Prepare for the connection of one machine, which proves itself by `token`; call `on_end` when it ends."""
        self.token = secrets.token_hex(TOKEN_BYTES // 2)
        self.ended = asyncio.Event()
        self._on_end = on_end
        self.why = ""
        self._transport: asyncio.Transport | None = None

    def take(self, transport: asyncio.Transport) -> None:
        """Accept `transport`, the machine's connection, and confirm it to the machine."""
        self._transport = transport
        transport.write(_TAKEN)

    def let_go(self) -> None:
        """Ask the fork server to end, by closing this end for sending; the connection stays open until it ends."""
        if self._transport is not None and self._transport.can_write_eof():
            with suppress(OSError):
                self._transport.write_eof()

    def expect_end(self) -> None:
        """Stop reporting the end of the connection, which is expected now."""
        self._on_end = lambda: None

    def end(self, why: str) -> None:
        """Record the end of the connection and its reason, and report it."""
        self.why = why
        self.ended.set()
        self._on_end()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()


class Lifelines:
    """The server for the lifelines of machines: connections without data, whose ends show that a machine is gone."""

    def __init__(self, silent_ns: int) -> None:
        """Consider a machine gone when its kernel has not answered for `silent_ns` nanoseconds, rounded to seconds."""
        self.silent_s = max(2, -(-silent_ns // NS_PER_S))
        self._awaited: dict[bytes, Lifeline] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen at all addresses of this machine; return the port. Raises OSError."""
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        listening = socket.create_server(("", 0), family=family, dualstack_ipv6=both)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), sock=listening)
        return int(listening.getsockname()[1])

    def expect(self, on_end: Callable[[], None]) -> Lifeline:
        """Return a new lifeline, with a token, for a machine that will connect; `on_end` is called when it ends."""
        line = Lifeline(on_end)
        self._awaited[line.token.encode()] = line
        return line

    def claim(self, token: bytes) -> Lifeline | None:
        """Return the lifeline of the machine that was given this `token`, once only; None if there is none.

        A lifeline is a connection to the supervisor without data, whose end shows that the machine is gone.
        """
        return self._awaited.pop(token, None)

    def close(self) -> None:
        """Accept no more connections; keep existing ones open."""
        if self._server is not None:
            self._server.close()


class _Connection(asyncio.Protocol):
    """An incoming connection, which is closed unless it sends a known token at once."""

    def __init__(self, lines: Lifelines) -> None:
        self._lines, self._said = lines, b""
        self._line: Lifeline | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        ask_each_second(transport.get_extra_info("socket"), self._lines.silent_s)
        self._impatience = asyncio.get_running_loop().call_later(CONNECT_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._line is not None:
            return
        self._said += data
        if len(self._said) < TOKEN_BYTES:
            return
        self._line = self._lines.claim(self._said)
        if self._line is None:
            self._transport.abort()
            return
        self._impatience.cancel()
        self._line.take(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._impatience.cancel()
        if self._line is not None:
            ended = exc is None or isinstance(exc, ConnectionError)
            self._line.end(
                "the connection that it kept to here ended"
                if ended
                else f"its system has answered nothing for {self._lines.silent_s} s"
            )
