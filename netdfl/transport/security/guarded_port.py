"""A gRPC server at one port, with all that keeps strangers out of it or reports them.

Every call that does not prove the secret of the fleet is refused before its data are read. `Visitors` ends connections
without a proof if there are too many. Connections that end before any call are reported by the `Guard` of TLS or, in
plain text, by a `DepartureMonitor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc
import grpc.aio

from netdfl.core.bounds import MOST_VISITORS
from netdfl.transport.security.callers import caller
from netdfl.transport.security.departures import DepartureMonitor, watched
from netdfl.transport.security.identity import plainly
from netdfl.transport.security.tls import Guard, Options
from netdfl.transport.security.visitors import Visitors
from netdfl.transport.v1.data_pb2 import HelloReply
from netdfl.transport.v1.meeting_pb2 import Answer

_ANSWERS: Mapping[str, Callable[[str], Any]] = {
    "/netdfl.v1.Node/Hello": lambda reason: HelloReply(reason=reason),
    "/netdfl.v1.Meeting/Meet": lambda reason: Answer(refusal=reason),
}


class GuardedPort(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """A gRPC server at one port, which lets in only calls of the fleet.

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
            guard: makes the port speak TLS, and names callers by their certificates; None: plain text.
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
        server = self._server = grpc.aio.server(options=options, interceptors=[self])
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

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Let a gRPC call proceed by `continuation`, or refuse it with the reason that `objection` returned."""
        told: Iterable[tuple[str, str | bytes]] = handler_call_details.invocation_metadata or ()
        reason = self._objection(dict(told))
        if not reason and (handler := await continuation(handler_call_details)) is not None:
            return self._noting(handler)
        method = handler_call_details.method

        async def refuse(unread: object, context: Any) -> None:
            certified = "" if self._guard is None else f", {self._guard.caller(context)} by its certificate"
            what = f"a call of {plainly(method)}: {reason or 'nobody answers such calls here'}"
            self._refused(f"{what} (from {caller(str(context.peer()))}{certified})")
            if not reason:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            if method not in _ANSWERS:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)
            await context.write(_ANSWERS[method](reason).SerializeToString())

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _noting(self, handler: Any) -> Any:
        """Return the gRPC handler `handler`, wrapped so that a call of it proves the connection over which it comes.

        A handler of streams is returned as it is: its service does this.
        """
        if (answer := handler.unary_unary) is None:
            return handler

        async def noted(asked: Any, context: Any) -> Any:
            self.proved(str(context.peer()))
            return await answer(asked, context)

        return handler._replace(unary_unary=noted)

    def proved(self, peer: str) -> None:
        """Protect a connection from being ended as a stranger's, because a member of the fleet made a call over it.

        `peer` is gRPC's name for the other end.
        """
        if self._visitors is not None:
            self._visitors.proved(peer)

    async def close(self, grace_s: float | None = None) -> None:
        """Report strangers for the last time, and stop the server; calls may continue for `grace_s` seconds."""
        for monitor in (self._guard, self._departures, self._visitors):
            if monitor is not None:
                monitor.close()
        if self._server is not None:
            await self._server.stop(grace_s)
