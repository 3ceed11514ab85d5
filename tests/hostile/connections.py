"""Connections over which nothing is proved, by raw sockets: who makes them, and what is said over them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress


def _client_hello() -> bytes:
    """The first part of a TLS handshake."""
    context = ssl.create_default_context()
    heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(heard, said, server_hostname="node-0").do_handshake()
    return said.read()


SAID: Mapping[str, bytes] = {
    "nothing": b"",
    "half an opening": b"PRI * HTTP/2",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5),
    "half a handshake": _client_hello(),
}


class Holder:
    """A stranger who holds as many connections to an address as it gets."""

    def __init__(self, address: str, said: str) -> None:
        host, _, port = address.rpartition(":")
        self._place, self._said = (host.strip("[]"), int(port)), SAID[said]
        self._held: list[socket.socket] = []

    def open(self, number: int) -> None:
        """Make more connections."""
        for _ in range(number):
            with suppress(OSError):
                made = socket.create_connection(self._place, timeout=1)
                self._held.append(made)
                made.setblocking(False)
                made.sendall(self._said)

    def count(self) -> int:
        """The number of connections that are still open; the others are closed here too."""
        held, self._held = self._held, []
        for each in held:
            if _is_open(each):
                self._held.append(each)
            else:
                each.close()
        return len(self._held)

    def close(self) -> None:
        for each in self._held:
            each.close()
        self._held.clear()


def _is_open(connection: socket.socket) -> bool:
    try:
        while connection.recv(1 << 16):
            continue
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


@contextmanager
def holding(address: str, said: str, number: int) -> Iterator[Holder]:
    """A stranger with connections to `address`, over each of which `said` is said."""
    holder = Holder(address, said)
    try:
        holder.open(number)
        yield holder
    finally:
        holder.close()
