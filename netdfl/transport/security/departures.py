"""Reports of strangers at a port without TLS: connections that closed before both ends had spoken HTTP/2.

gRPC reports nothing about a connection that it closes at its first bytes. Linux does: its `sock_diag` (the source of
`ss --events`) sends, for each TCP connection that ends, how many bytes went each way. A peer's connection carries the
opening of HTTP/2 both ways: the client's opening, and the server's greeting with its answer to that opening. If the
answer is missing, one of two things happened. The server closed the connection because it had read something else: a
stranger. Or the server was too slow and a peer gave up: no stranger. The times in the same record tell these apart.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

PROBE_S = 3.0
_SILENT_MS = 1000
_OPENING = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
)  # a client's opening, with settings that change nothing
_ANSWER = b"\0\0\0\4\1\0\0\0\0"  # a server has read the client's settings
_SOCK_DIAG, _SOL_NETLINK, _ADD_MEMBERSHIP, _ATTACH_FILTER = 4, 270, 1, 26
_TCP_ENDED = (1, 3)  # IPv4, IPv6
_FAMILY_AT, _PORT_AT, _ADDRESS_AT, _ATTRIBUTES_AT, _INFO = 16, 20, 40, 88, 2
_UNACKNOWLEDGED_AT = 76  # with the end of what was sent, as a byte
_SENT_AGO_AT, _CAME_AGO_AT, _ACKNOWLEDGED_AT, _SENT_AT = 44, 52, 120, 200  # in the kernel's `tcp_info`


async def greeting(host: str, port: int) -> bytes:
    """Return the first bytes that an HTTP/2 server sends on its own; empty if the server at that address sends none.

    Raises OSError if there is no server.
    """
    async with asyncio.timeout(PROBE_S):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(_OPENING)
        try:
            return (await reader.readuntil(_ANSWER)).removesuffix(_ANSWER)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return b""
        finally:
            writer.transport.abort()


async def watched(address: str, refused: Callable[[str], None]) -> DepartureMonitor | None:
    """Watch the port at `address`, and call `refused` with a text about each connection from outside the fleet.

    Return the monitor of the port, or None if the operating system can't report ended connections.
    """
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host in ("[::]", "0.0.0.0") else host.strip("[]")
    try:
        ended = _departures(int(port))
    except (OSError, AttributeError):  # no Linux, or a kernel without sock_diag
        return None
    said = b""
    with suppress(OSError):
        said = await greeting(host, int(port))
    return DepartureMonitor(ended, len(said), refused)


class DepartureMonitor:
    """A monitor of one port that reports the connections which ended before both ends had spoken HTTP/2."""

    def __init__(self, ended: socket.socket, greeting_nbytes: int, refused: Callable[[str], None]) -> None:
        """Read the kernel's reports of ended connections from the socket `ended`, on the running event loop.

        `greeting_nbytes` is the size of the port's HTTP/2 greeting; `refused` gets a text about each stranger.
        """
        self._ended, self._refused = ended, refused
        self._greeting_nbytes = greeting_nbytes
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ended, self._read)

    def close(self) -> None:
        """Report the connections that have ended so far, before the server closes the others."""
        if self._ended.fileno() < 0:
            return
        self._read()
        self._loop.remove_reader(self._ended)
        self._ended.close()

    def _read(self) -> None:
        while True:
            try:
                self._judge(self._ended.recv(1 << 16))
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # more ended at once than it keeps
                    return

    def _judge(self, told: bytes) -> None:
        spoken = _traffic(told)
        if spoken.received > 1:  # the end of what comes counts as a byte, or not
            answered = spoken.sent >= self._greeting_nbytes + len(_ANSWER) and spoken.received >= len(_OPENING)
            in_time = spoken.heard >= self._greeting_nbytes and spoken.quiet_ms <= _SILENT_MS
            stranger = not answered and (spoken.ended_here or in_time)
        else:  # a peer that is killed as it connects says nothing either, and is gone at once
            stranger = spoken.sent > self._greeting_nbytes or spoken.sent_ago_ms > _SILENT_MS
        if stranger:
            host, port = _who(told)
            nbytes = spoken.received
            self._refused(
                f"a connection from {host}, port {port}, ended before it spoke HTTP/2: {nbytes} bytes came, TLS or "
                "anything else, where this run speaks plain text"
            )


def _departures(port: int) -> socket.socket:
    """Return a socket from which the kernel's reports of ended TCP connections at `port` can be read.

    Raises OSError.
    """
    told = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _SOCK_DIAG)
    code = ((0x28, 0, 0, _PORT_AT), (0x15, 0, 1, port), (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0))  # of `port` alone
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
    told.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", len(code), ctypes.addressof(program)))
    told.bind((0, 0))
    for group in _TCP_ENDED:
        told.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
    return told


class _ConnectionTraffic(NamedTuple):
    """The traffic of an ended connection, counted at this end.

    Attributes:
        sent: bytes that this end sent.
        heard: bytes that the other end acknowledged.
        received: bytes that came.
        sent_ago_ms: how long ago this end last sent.
        came_ago_ms: how long ago the last bytes came.
        ended_here: whether this end closed the connection.
    """

    sent: int
    heard: int
    received: int
    sent_ago_ms: int
    came_ago_ms: int
    ended_here: bool

    @property
    def quiet_ms(self) -> int:
        """Milliseconds since this end last sent, or since it last received if that is longer.

        Large only if this end was slow.
        """
        return max(self.sent_ago_ms, self.came_ago_ms)


def _traffic(told: bytes) -> _ConnectionTraffic:
    """Read the traffic of an ended connection from the kernel report `told`.

    If the report has no byte counts, assume the traffic of a peer.
    """
    at = _ATTRIBUTES_AT
    while at + 4 <= len(told):
        nbytes, kind = struct.unpack_from("=HH", told, at)
        if kind == _INFO and nbytes >= 4 + _SENT_AT + 16:
            info = at + 4
            sent, again = struct.unpack_from("=QQ", told, info + _SENT_AT)
            acknowledged, received = struct.unpack_from("=QQ", told, info + _ACKNOWLEDGED_AT)
            (sent_ago_ms,) = struct.unpack_from("=I", told, info + _SENT_AGO_AT)
            (came_ago_ms,) = struct.unpack_from("=I", told, info + _CAME_AGO_AT)
            (unacknowledged,) = struct.unpack_from("=I", told, _UNACKNOWLEDGED_AT)
            ended_here = acknowledged + unacknowledged > sent - again
            return _ConnectionTraffic(sent - again, acknowledged, received, sent_ago_ms, came_ago_ms, ended_here)
        at += max(4, (nbytes + 3) & ~3)
    return _ConnectionTraffic(1 << 63, 1 << 63, 1 << 63, 0, 0, False)


def _who(told: bytes) -> tuple[str, int]:
    """Return the address and port of the other end of a connection, from the kernel report `told`."""
    (port,) = struct.unpack_from("!H", told, _PORT_AT + 2)
    if told[_FAMILY_AT] == socket.AF_INET:
        return str(IPv4Address(told[_ADDRESS_AT : _ADDRESS_AT + 4])), port
    address = IPv6Address(told[_ADDRESS_AT : _ADDRESS_AT + 16])
    return str(address.ipv4_mapped or address), port
