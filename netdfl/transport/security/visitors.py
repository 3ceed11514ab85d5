"""The limit on a port's connections over which nobody has proved the fleet's secret: of too many, the oldest are ended.

gRPC bounds how many connections a port has, but does not report connections without calls. So the open files of this
process are checked regularly. A stranger who takes all places of a port loses the oldest of its connections at the next
check, so that a caller with a proof finds a place.

Relies on: the names of open files (`/proc/self/fd`, `/dev/fd`), and calls of `proved` for each call with a proof.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeAlias
from urllib.parse import unquote

Peer: TypeAlias = tuple[str, int]
"""The host and port at the other end of a connection."""
LOOK_S, PRESSED_S = 0.5, 0.05
"""Seconds between two checks of a port's connections: usually, and after a check that had to end some."""
SPARE = 20
"""After a check, the next one waits for at least this many times the CPU time that the check took."""
FULL = "Socket closed"
"""The text of gRPC's error for a port that takes no more connections; a port that does not exist gives another text."""
ROOM_AFTER_S = (0.6, 1.2)
"""Seconds to wait before each further try at a full port; longer than the time between the port's checks, and than
gRPC's own pauses."""
_TCP = (socket.AF_INET, socket.AF_INET6)
_FDS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"


class Visitors:
    """The limit `most` on a port's connections over which no call has proved the fleet's secret, checked regularly."""

    def __init__(self, port: int, most: int, refused: Callable[[str], None]) -> None:
        """Check the connections of `port` until `close`; leave at most `most` open without a proof of the secret.

        Call `refused` with a text if connections were ended.
        """
        self._port, self._most, self._refused = port, most, refused
        self._proved: set[Peer] = set()
        self._seen: dict[Peer, None] = {}  # without a proof, in the order in which they were first seen
        self._others = number_of_files()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LOOK_S, self._look_again)

    def proved(self, peer: str) -> None:
        """Never end the connection of `peer` (gRPC's name for its other end), as a call over it proved the secret."""
        self._proved.add(read_peer(peer))

    def close(self) -> None:
        """Stop the regular checks of connections."""
        self._timer.cancel()

    def _look_again(self) -> None:
        began, wait_s = time.thread_time(), LOOK_S
        files = number_of_files()
        if files > self._others + self._most:
            wait_s = PRESSED_S if self._look() else LOOK_S
        else:  # one less each time, so that a look comes however many other files were closed
            self._others = min(self._others - 1, files)
        took = time.thread_time() - began
        self._timer = self._loop.call_later(max(wait_s, SPARE * took), self._look_again)

    def _look(self) -> bool:
        """End the oldest connections without a proof if there are more than allowed; return whether there were more."""
        there = {peer for peer, _ in connections_at(self._port)}
        self._proved &= there
        without = there - self._proved
        self._seen = {peer: None for peer in (*self._seen, *sorted(without)) if peer in without}
        surplus = list(self._seen)[: max(0, len(self._seen) - self._most)]
        self._others = number_of_files() - len(without)
        if surplus:
            self._end(surplus)
        return bool(surplus)

    def _end(self, surplus: list[Peer]) -> None:
        ended = set(surplus)
        for peer, connection in connections_at(self._port):
            if peer in ended:
                with suppress(OSError):  # ended in the meantime
                    connection.shutdown(socket.SHUT_RDWR)
        what = f"{len(ended)} connections over which nobody proved the secret were ended: at most {self._most} may stay"
        self._refused(f"{what} (from {surplus[0][0]})")


def number_of_files() -> int:
    """Return the number of open files of this process."""
    return os.stat(_FDS).st_size or len(os.listdir(_FDS))  # of the kernel in one call, since Linux 6.2


def connections_at(port: int) -> Iterator[tuple[Peer, socket.socket]]:
    """Yield each connection of this process to its own `port`: the other end, and a copy of the socket.

    The copy is closed afterwards.
    """
    for each in os.listdir(_FDS):
        with suppress(OSError):  # closed in the meantime
            fd = os.dup(int(each))
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.close(fd)
                continue
            with socket.socket(fileno=fd) as connection:
                if connection.family in _TCP and connection.getsockname()[1] == port:
                    host, number, *_ = connection.getpeername()
                    yield (host.removeprefix("::ffff:"), number), connection


def read_peer(peer: str) -> Peer:
    """Parse a peer's address as gRPC writes it, like `ipv4:10.0.0.2:4711` or `ipv6:%5B::1%5D:4711`."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return host.strip("[]").removeprefix("::ffff:"), int(port) if port.isdigit() else 0
