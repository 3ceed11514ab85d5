"""Mutual TLS around gRPC: channels and ports with or without credentials, and the identity of callers.

gRPC reports nothing about a caller that TLS refuses. But it asks for the server's certificate at each new connection.
So a `Guard` notes each connection when it opens, and reports it as a stranger's if it ends before any call was made.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import grpc
import grpc.aio

from netdfl.core.types import NodeId
from netdfl.transport.security.credentials import NOBODY, CertificateSubject, Credentials, name_of, read_names, who
from netdfl.transport.security.departures import PROBE_S, greeting
from netdfl.transport.security.visitors import Peer, connections_at, read_peer

Options: TypeAlias = Sequence[tuple[str, int | str]]
LOOK_S = 0.25
"""Seconds between two checks whether new connections are still open."""
DEAR_S, SPARE = 0.005, 20
"""DEAR_S: the CPU seconds from which a check counts as expensive. SPARE: the next check waits for this many times the
CPU time of an expensive one."""


def open_channel(address: str, callee: NodeId, options: Options, credentials: Credentials | None) -> grpc.aio.Channel:
    """Return a channel to `address`; with `credentials`, TLS verifies that node `callee` of this run is there."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    mine = grpc.ssl_channel_credentials(
        credentials.authority.encode(), credentials.key.encode(), credentials.certificate.encode()
    )
    name = ("grpc.ssl_target_name_override", name_of(credentials.run, callee))
    return grpc.aio.secure_channel(address, mine, options=[*options, name])


class Guard:
    """The guard of a port with TLS: it identifies callers, and reports connections that ended before any call."""

    def __init__(self, credentials: Credentials, refused: Callable[[str], None]) -> None:
        """Call `refused` with a text about each stranger, on the event loop on which the port is opened."""
        self._credentials, self._refused = credentials, refused
        self._coming: dict[Peer, bool] = {}  # by connection, whether a call came over it
        self._came = self._seen = 0  # number of connections, and how many of them have a known other end
        self._checks = 0  # finished ones; a list of connections that a thread began before the last is out of date
        self._look_from = 0.0
        self._port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look: asyncio.TimerHandle | None = None
        self._kept: grpc.ServerCredentials | None = None

    def open_port(self, server: grpc.aio.Server, address: str) -> int:
        """Add a port with TLS to `server`; return its number. Raises RuntimeError if that fails."""
        mine = self._credentials
        pairs = [(mine.key.encode(), mine.certificate.encode())]
        known = grpc.ssl_server_certificate_configuration(pairs, mine.authority.encode())
        self._loop = asyncio.get_running_loop()
        self._kept = grpc.dynamic_ssl_server_credentials(known, self._somebody_came, True)
        port = int(server.add_secure_port(address, self._kept))
        self._port = 0 if address.startswith("unix:") else port
        return port

    def caller(self, context: Any) -> CertificateSubject:
        """Return the caller's identity from its certificate."""
        self._proved(context.peer())
        names = context.auth_context().get("peer_dns", ())
        found = read_names(name.decode(errors="replace") for name in names)
        return found if found is not None and found.run == self._credentials.run else CertificateSubject("", NOBODY, 0)

    def close(self) -> None:
        """Report strangers for the last time, before the server stops and also closes the connections of peers."""
        self._loop = None  # so that no other look follows
        if self._look is not None:
            self._look.cancel()
            self._look_again()

    # connections

    def _somebody_came(self) -> None:
        """Note a new connection. Called in a thread of gRPC, before the TLS handshake."""
        checks = self._checks
        came = self._connected() if self._port and time.monotonic() >= self._look_from else set()
        with suppress(AttributeError, RuntimeError):  # closed in the meantime
            self._loop.call_soon_threadsafe(self._note, came, checks)  # type: ignore[union-attr]

    def _connected(self) -> set[Peer]:
        """Return the currently connected peers; the cost grows with the number of open files."""
        before = time.thread_time()
        found = {peer for peer, _ in connections_at(self._port)}
        took = time.thread_time() - before
        self._look_from = time.monotonic() + (SPARE * took if took > DEAR_S else 0)
        return found

    def _note(self, came: set[Peer], checks: int) -> None:
        """Count a new connection, and note the peers `came` that were connected when it opened.

        The peers are ignored if there was another check since, so that the number of checks is not `checks` any more.
        """
        if not self._port or self._loop is None:
            return
        self._came += 1
        self._see(came if checks == self._checks else ())
        if self._look is None:
            self._look_later()

    def _look_later(self) -> None:
        if self._loop is not None:
            wait_s = max(LOOK_S, self._look_from - time.monotonic())
            self._look = self._loop.call_later(wait_s, self._look_again)

    def _see(self, peers: Iterable[Peer]) -> None:
        for peer in peers:
            if peer not in self._coming:
                self._coming[peer] = False
                self._seen += 1

    def _proved(self, peer: str) -> None:
        if self._port:
            self._see([read_peer(peer)])
            self._coming[read_peer(peer)] = True

    def _look_again(self) -> None:
        """Report the connections that have ended without a call; schedule another check while some are still open."""
        there = self._connected()
        self._see(there)
        for peer, proved in list(self._coming.items()):
            if peer not in there:
                del self._coming[peer]
                if not proved:
                    host, port = peer
                    self._refused(f"a connection from {host}, port {port}, {_ENDED}")
        while self._seen < self._came:  # between two looks
            self._seen += 1
            self._refused(f"a connection {_ENDED}")
        self._look = None
        self._checks += 1
        if not all(self._coming.values()):
            self._look_later()


_ENDED = "ended before TLS knew it for this run's: no certificate of the run was shown, or no TLS spoken"


async def why_not(address: str, callee: NodeId, credentials: Credentials | None) -> str:
    """Return the reason why TLS fails between this node and `address`; empty if TLS is not the cause.

    One handshake by `ssl` finds the reason. gRPC can't tell a refused handshake from a dead peer.
    """
    host, _, port = address.rpartition(":")
    name = None if credentials is None else name_of(credentials.run, callee)
    try:
        if credentials is None and await greeting(host.strip("[]"), int(port)):
            return ""
        async with asyncio.timeout(PROBE_S):
            context = _trusting(credentials)
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        return f"who listens at {address} has a certificate, but not that of {who(callee)} of this run: " + (
            error.verify_message
        )
    except ssl.SSLError:
        return "" if credentials is None else f"who listens at {address} speaks no TLS, and this node does"
    except (OSError, ValueError):
        return ""
    writer.transport.abort()
    return "" if credentials is not None else f"who listens at {address} speaks TLS, and this node does not"


def _trusting(credentials: Credentials | None) -> ssl.SSLContext:
    """Return a TLS context that trusts the run's authority; without credentials, one that accepts any certificate."""
    if credentials is not None:
        return ssl.create_default_context(cadata=credentials.authority)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
