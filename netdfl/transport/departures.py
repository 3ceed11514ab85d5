"""Who came to a port without TLS and spoke no HTTP/2: the system says of each connection that ends what went over it.

gRPC tells nothing of a connection that it ends at its first bytes. But Linux tells whoever asks, of all connections of
this network (`sock_diag`, what `ss --events` shows), how much each end had said. A connection of a peer's carries the
opening of HTTP/2 both ways: theirs, and the server's greeting with its answer to theirs.
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

PROBE_S = 3.0
_SILENT_MS = 1000
_OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # a client's, with settings that change nothing
_ANSWER = b"\0\0\0\4\1\0\0\0\0"  # a server has read the client's settings
_SOCK_DIAG, _SOL_NETLINK, _ADD_MEMBERSHIP, _ATTACH_FILTER = 4, 270, 1, 26
_TCP_ENDED = (1, 3)  # IPv4, IPv6
_FAMILY_AT, _PORT_AT, _ADDRESS_AT, _ATTRIBUTES_AT, _INFO = 16, 20, 40, 88, 2
_SENT_AGO_AT, _RECEIVED_AT, _SENT_AT = 44, 128, 200  # in the kernel's `tcp_info`


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
    try:
        ended = _departures(int(port))
    except (OSError, AttributeError):  # no Linux, or a kernel without sock_diag
        return None
    said = b""
    with suppress(OSError):
        said = await greeting(host.strip("[]"), int(port))
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
        sent, received, quiet_ms = _spoken(told)
        if received > 1:  # the end of what comes counts as a byte, or not
            stranger = sent < self._greeting_nbytes + len(_ANSWER) or received < len(_OPENING)
        else:  # a peer that is killed as it connects says nothing either, and is gone at once
            stranger = sent > self._greeting_nbytes or quiet_ms > _SILENT_MS
        if stranger:
            host, port = _who(told)
            self._refused(
                f"a connection from {host}, port {port}, ended before it spoke HTTP/2: {received} bytes came, TLS or "
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


def _spoken(told: bytes) -> tuple[int, int, int]:
    """Bytes sent and received over it, and how long ago the last was sent; more than a stranger's if nobody knows."""
    at = _ATTRIBUTES_AT
    while at + 4 <= len(told):
        nbytes, kind = struct.unpack_from("=HH", told, at)
        if kind == _INFO and nbytes >= 4 + _SENT_AT + 16:
            sent, again = struct.unpack_from("=QQ", told, at + 4 + _SENT_AT)
            (received,) = struct.unpack_from("=Q", told, at + 4 + _RECEIVED_AT)
            (quiet_ms,) = struct.unpack_from("=I", told, at + 4 + _SENT_AGO_AT)
            return sent - again, received, quiet_ms
        at += max(4, (nbytes + 3) & ~3)
    return 1 << 63, 1 << 63, 0


def _who(told: bytes) -> tuple[str, int]:
    """The other end's address and port."""
    (port,) = struct.unpack_from("!H", told, _PORT_AT + 2)
    if told[_FAMILY_AT] == socket.AF_INET:
        return str(IPv4Address(told[_ADDRESS_AT : _ADDRESS_AT + 4])), port
    address = IPv6Address(told[_ADDRESS_AT : _ADDRESS_AT + 16])
    return str(address.ipv4_mapped or address), port
