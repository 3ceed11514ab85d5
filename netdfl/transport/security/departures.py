"""Who came to a port without TLS and spoke no HTTP/2: the system says of each connection that ends what went over it.

gRPC tells nothing of a connection that it ends at its first bytes. But Linux tells whoever asks, of all connections of
this network (`sock_diag`, what `ss --events` shows), how much each end had said. A connection of a peer's carries the
opening of HTTP/2 both ways: theirs, and the server's greeting with its answer to theirs. Where that answer is missing
it is the server that ended the connection, for it had read something else; or it was too slow, and a peer gave it up.
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
_OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # a client's, with settings that change nothing
_ANSWER = b"\0\0\0\4\1\0\0\0\0"  # a server has read the client's settings
_SOCK_DIAG, _SOL_NETLINK, _ADD_MEMBERSHIP, _ATTACH_FILTER = 4, 270, 1, 26
_TCP_ENDED = (1, 3)  # IPv4, IPv6
_FAMILY_AT, _PORT_AT, _ADDRESS_AT, _ATTRIBUTES_AT, _INFO = 16, 20, 40, 88, 2
_UNACKNOWLEDGED_AT = 76  # with the end of what was sent, as a byte
_SENT_AGO_AT, _CAME_AGO_AT, _ACKNOWLEDGED_AT, _RECEIVED_AT, _SENT_AT = (
    44,
    52,
    120,
    128,
    200,
)  # in the kernel's `tcp_info`


async def greeting(host: str, port: int) -> bytes:
    """What a server of HTTP/2 says before it has heard its client; empty of who is none. Raises OSError."""
    async with asyncio.timeout(PROBE_S):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(_OPENING)
        try:
            return (await reader.readuntil(_ANSWER)).removesuffix(_ANSWER)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return b""
        finally:
            writer.transport.abort()


async def watched(address: str, refused: Callable[[str], None]) -> Watch | None:
    """Tell `refused` of each stranger at `address`, where this process listens; None where the system tells of none."""
    host, _, port = address.rpartition(":")
    if address.startswith("unix:"):
        return None
    host = "127.0.0.1" if host in ("[::]", "0.0.0.0") else host.strip("[]")
    try:
        ended = _departures(int(port))
    except (OSError, AttributeError):  # no Linux, or a kernel without sock_diag
        return None
    said = b""
    with suppress(OSError):
        said = await greeting(host, int(port))
    return Watch(ended, len(said), refused)


class Watch:
    """Tells of connections that ended before both ends had spoken HTTP/2."""

    def __init__(self, ended: socket.socket, greeting_nbytes: int, refused: Callable[[str], None]) -> None:
        """Read `ended` on the running event loop."""
        self._ended, self._refused = ended, refused
        self._greeting_nbytes = greeting_nbytes
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ended, self._read)

    def close(self) -> None:
        """Tell of those that have ended by now, before the server ends the others."""
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
        spoken = _spoken(told)
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
    """Where the kernel tells of each TCP connection at `port` that has ended. Raises OSError."""
    told = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, _SOCK_DIAG)
    code = ((0x28, 0, 0, _PORT_AT), (0x15, 0, 1, port), (0x06, 0, 0, 0xFFFFFFFF), (0x06, 0, 0, 0))  # of `port` alone
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
    told.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", len(code), ctypes.addressof(program)))
    told.bind((0, 0))
    for group in _TCP_ENDED:
        told.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
    return told


class _Spoken(NamedTuple):
    """Bytes sent, heard at the other end, received; how long ago the last came and went; whether this end ended it."""

    sent: int
    heard: int
    received: int
    sent_ago_ms: int
    came_ago_ms: int
    ended_here: bool

    @property
    def quiet_ms(self) -> int:
        """For how long one of them had said nothing: longer than it takes to answer, unless this end was slow."""
        return max(self.sent_ago_ms, self.came_ago_ms)


def _spoken(told: bytes) -> _Spoken:
    """What went over it; more than a stranger's if nobody knows."""
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
            return _Spoken(sent - again, acknowledged, received, sent_ago_ms, came_ago_ms, ended_here)
        at += max(4, (nbytes + 3) & ~3)
    return _Spoken(1 << 63, 1 << 63, 1 << 63, 0, 0, False)


def _who(told: bytes) -> tuple[str, int]:
    """The other end's address and port."""
    (port,) = struct.unpack_from("!H", told, _PORT_AT + 2)
    if told[_FAMILY_AT] == socket.AF_INET:
        return str(IPv4Address(told[_ADDRESS_AT : _ADDRESS_AT + 4])), port
    address = IPv6Address(told[_ADDRESS_AT : _ADDRESS_AT + 16])
    return str(address.ipv4_mapped or address), port
