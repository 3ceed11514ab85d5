"""The gatekeeper of a port: it refuses every call that does not prove the secret of the fleet, before reading it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc
import grpc.aio

from netdfl.transport.security.callers import caller
from netdfl.transport.security.identity import plainly
from netdfl.transport.security.tls import Guard
from netdfl.transport.v1.data_pb2 import HelloReply
from netdfl.transport.v1.meeting_pb2 import Answer

_ANSWERS: Mapping[str, Callable[[str], Any]] = {
    "/netdfl.v1.Node/Hello": lambda reason: HelloReply(reason=reason),
    "/netdfl.v1.Meeting/Meet": lambda reason: Answer(refusal=reason),
}


class Gatekeeper(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """The check at a gRPC server that each call is from a member of the fleet, before its data are read."""

    def __init__(
        self,
        objection: Callable[[Mapping[str, str | bytes]], str],
        refused: Callable[[str], None],
        guard: Guard | None,
        proved: Callable[[str], None],
    ) -> None:
        """Refuse each call whose metadata `objection` rejects, and each call that no service of this server answers.

        Args:
            objection: returns the reason to refuse a call with this metadata; empty to let it in.
            refused: called with a text about each refused call.
            guard: reads the caller's name, for these texts, from its certificate; None without TLS.
            proved: called with gRPC's name for the other end of a connection when a call with one answer is let in over
                it. For streams, their services call it.
        """
        self._objection, self._refused, self._guard, self._proved = objection, refused, guard, proved

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Let a gRPC call proceed by `continuation`, or refuse it with the reason that `objection` returned."""
        told: Iterable[tuple[str, str | bytes]] = handler_call_details.invocation_metadata or ()
        reason = self._objection(dict(told))
        if not reason and (handler := await continuation(handler_call_details)) is not None:
            return _noting(handler, self._proved)
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


def _noting(handler: Any, note: Callable[[str], None]) -> Any:
    """Return the gRPC handler `handler`, wrapped so that it first passes its caller's address to `note`.

    A handler of streams is returned as it is.
    """
    if (answer := handler.unary_unary) is None:
        return handler

    async def noted(asked: Any, context: Any) -> Any:
        note(str(context.peer()))
        return await answer(asked, context)

    return handler._replace(unary_unary=noted)
