"""The name of a caller: its address, and its user if the kernel of this machine knows.

A caller on this machine has its end of the connection in the kernel's table of TCP sockets, which names the user.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote

from netdfl.transport.security.identity import plainly

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LOCAL, _USER = 1, 7
"""The columns with a socket's own address and its user in the kernel's table of TCP sockets."""
MOST_USERS = 1000
"""The most callers whose users are looked up, so that calls from ever new ports can't keep a process reading tables."""


@lru_cache(maxsize=256)
def caller(peer: str) -> str:
    """Return a text for a caller, given gRPC's name `peer`: its address, and its user if it is on this machine.

    Results are cached, as a connection keeps its caller and may make very many calls. Only the users of the first
    `MOST_USERS` callers are looked up.
    """
    found = user_at(peer) if caller.cache_info().misses <= MOST_USERS else None
    return plainly(unquote(peer)) + ("" if found is None else f", user {found}")


def user_at(peer: str) -> int | None:
    """Return the user id of the socket at `peer`, like `ipv4:127.0.0.1:4711`; None if the kernel does not tell."""
    kind, _, place = unquote(peer).partition(":")
    host, _, port = place.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
        wanted = {f"{_hexadecimal(form)}:{int(port):04X}" for form in _forms(address.packed)}
        for table in _TABLES:
            for line in Path(table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[_LOCAL] in wanted:
                    return int(columns[_USER])
    except (OSError, ValueError, IndexError):
        return None
    return None


def _forms(packed: bytes) -> tuple[bytes, ...]:
    """Return an IP address, given as `packed` bytes, in its IPv4 form and its IPv6 form, as far as it has both."""
    if len(packed) == 4:
        return packed, bytes(10) + b"\xff\xff" + packed
    mapped = packed[:12] == bytes(10) + b"\xff\xff"
    return (packed, packed[12:]) if mapped else (packed,)


def _hexadecimal(packed: bytes) -> str:
    """Return an address in the hexadecimal form of the kernel's socket tables."""
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))
