"""Measurements of the network between two machines: the round trip of a few bytes, and the rate of a stream.

One machine runs a server, the other connects to it; both know a token. netdfl's own transport is not involved: the
results hold for any TCP connection.
"""

from __future__ import annotations

import hmac
import os
import select
import socket
import socketserver
import time
from collections.abc import Mapping
from contextlib import suppress
from statistics import median
from typing import Any

CONNECT_S, QUIET_S = 3.0, 3.0
PINGS = 10
RATE_S, RATE_BYTES = 0.2, 8 << 20
"""A stream's rate is measured over this many seconds or bytes, whichever ends first, without the first quarter."""
UNCOUNTED = 0.25
_TOKEN_BYTES, _PING, _STREAM = 32, b"p", b"s"
_PIECE = bytes(1 << 16)

Target = tuple[str, int]


class MeasurementServer(socketserver.ThreadingTCPServer):
    """A server that measures the network for callers who know the token."""

    daemon_threads, allow_reuse_address, block_on_close = True, True, False

    def __init__(self, address: str, token: str) -> None:
        """Listen at a free port of `address`. Raises OSError."""
        self.token = token.encode()
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, 0), _MeasurementRequest)

    @property
    def port(self) -> int:
        """The port at which the server listens."""
        return int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connection errors, because a caller may leave at any time."""


class _MeasurementRequest(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        line: socket.socket = self.request
        line.settimeout(QUIET_S)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        served = self.server
        assert isinstance(served, MeasurementServer)
        if not hmac.compare_digest(_exactly(line, _TOKEN_BYTES), served.token):
            return
        while kind := line.recv(1):
            if kind == _PING:
                line.sendall(kind)
            else:
                line.sendall(f"{_rate_of(line):.0f}\n".encode())
                with suppress(OSError):
                    while line.recv(1 << 18):  # closed with something unread, the answer would be lost
                        pass
                return


def _exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := line.recv(count - len(data))):
        data += more
    return data


def _rate_of(line: socket.socket) -> float:
    """Return the rate (bit/s) of incoming bytes on a connection, without the first quarter; 0 if they are too few."""
    got, counted, since = 0, 0, 0.0
    began = now = time.monotonic()
    while got < RATE_BYTES and now - began < RATE_S:
        piece = line.recv(1 << 18)
        if not piece:
            break
        now = time.monotonic()
        got += len(piece)
        if not since and (now - began > RATE_S * UNCOUNTED or got > RATE_BYTES * UNCOUNTED):
            counted, since = got, now
    return 8 * (got - counted) / (now - since) if since and now > since else 0.0


def _call(target: Target, token: str) -> socket.socket:
    line = socket.create_connection(target, CONNECT_S)
    line.settimeout(QUIET_S)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(token.encode())
    return line


def round_trip_s(target: Target, token: str) -> float:
    """Return the median time of some round trips to the server at `target`, in seconds. Raises OSError."""
    took = []
    with _call(target, token) as line:
        for _ in range(PINGS):
            before = time.monotonic()
            line.sendall(_PING)
            if line.recv(1) != _PING:
                raise ConnectionError("whoever listens there is not of this run")
            took.append(time.monotonic() - before)
    return median(took)


def rate_bps(target: Target, token: str) -> float:
    """Return the rate (bit/s) at which a stream reaches the server at `target`. Raises OSError."""
    with _call(target, token) as line:
        line.sendall(_STREAM)
        sent, until = 0, time.monotonic() + 2 * RATE_S
        with suppress(ConnectionError, TimeoutError):
            while sent < 2 * RATE_BYTES and time.monotonic() < until:
                ready, _, _ = select.select([line], [], [], 0)
                if ready:
                    break  # the other side has seen enough, and says what
                sent += line.send(_PIECE)
        with suppress(ConnectionError):
            line.shutdown(socket.SHUT_WR)
        return float(line.makefile("rb").readline() or 0)


def best_rate_bps(target: Target, token: str) -> float:
    """Return the higher of two measured rates in bit/s, because load on a machine lowers a single one.

    Raises OSError.
    """
    return max(rate_bps(target, token) for _ in range(2))


def measured(what: str, targets: Mapping[str, Target], token: str) -> dict[str, Any]:
    """Measure `round_trip_s` or `rate_bps` to each of `targets`; give an error text where a target can't be reached."""
    measure = {"round_trip_s": round_trip_s, "rate_bps": best_rate_bps}[what]
    found: dict[str, Any] = {}
    for name, (host, port) in targets.items():
        try:
            found[name] = measure((host, port), token)
        except OSError as error:
            found[name] = f"{os.strerror(error.errno) if error.errno else str(error) or type(error).__name__}"
    return found
