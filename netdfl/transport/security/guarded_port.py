"""A gRPC server at one port, with all that keeps strangers out of it or reports them.

A `Gatekeeper` refuses calls without a proof of the fleet's secret, and `Visitors` ends connections without one if there
are too many. Connections that end before any call are reported by the `Guard` of TLS or, in plain text, by a
`DepartureMonitor`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import grpc
import grpc.aio

from netdfl.core.bounds import MOST_VISITORS
from netdfl.transport.security.departures import DepartureMonitor, watched
from netdfl.transport.security.gatekeeper import Gatekeeper
from netdfl.transport.security.tls import Guard, Options
from netdfl.transport.security.visitors import Visitors


class GuardedPort:
    """A gRPC server at one port, which lets in the calls of the fleet alone.

    `address` is where it listens; empty before `open`.
    """

    def __init__(
        self,
        handler: grpc.GenericRpcHandler,
        objection: Callable[[Mapping[str, str | bytes]], str],
        refused: Callable[[str], None],
        guard: Guard | None,
    ) -> None:
        """Prepare a port, without listening yet.

        Args:
            handler: answers the calls that are let in.
            objection: returns the reason to refuse a call with this metadata; empty to let it in.
            refused: called with a text about each stranger.
            guard: makes the port speak TLS; None: plain text.
        """
        self.address = ""
        self._handler, self._objection, self._refused, self._guard = handler, objection, refused, guard
        self._server: grpc.aio.Server | None = None
        self._departures: DepartureMonitor | None = None
        self._visitors: Visitors | None = None

    async def open(self, address: str, options: Options) -> str:
        """Listen at `address`, `host:port` (0: a free port) or `unix:PATH`; return it with the actual port number.

        Raises RuntimeError if that fails.
        """
        gatekeeper = Gatekeeper(self._objection, self._refused, self._guard, self.proved)
        server = self._server = grpc.aio.server(options=options, interceptors=[gatekeeper])
        server.add_generic_rpc_handlers((self._handler,))
        port = int(server.add_insecure_port(address)) if self._guard is None else self._guard.open_port(server, address)
        is_file = address.startswith("unix:")
        self.address = address if is_file else f"{address.rpartition(':')[0]}:{port}"
        await server.start()
        if not is_file:
            self._visitors = Visitors(port, MOST_VISITORS, self._refused)
            if self._guard is None:
                self._departures = await watched(self.address, self._refused)
        return self.address

    def proved(self, peer: str) -> None:
        """Protect a connection from being ended as a stranger's, because a member of the fleet made a call over it.

        `peer` is gRPC's name for the other end.
        """
        if self._visitors is not None:
            self._visitors.proved(peer)

    async def close(self, grace_s: float | None = None) -> None:
        """Report strangers for the last time, and stop the server; calls may go on for `grace_s` seconds."""
        for monitor in (self._guard, self._departures, self._visitors):
            if monitor is not None:
                monitor.close()
        if self._server is not None:
            await self._server.stop(grace_s)
