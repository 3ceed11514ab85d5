"""The gatekeeper of a port: it refuses every call that does not prove the secret of the fleet, before reading it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc
import grpc.aio

from netdfl.transport.security.callers import caller
from netdfl.transport.security.identity import plainly
from netdfl.transport.v1.data_pb2 import HelloReply
from netdfl.transport.v1.meeting_pb2 import Answer

_ANSWERS: Mapping[str, Callable[[str], Any]] = {
    "/netdfl.v1.Node/Hello": lambda reason: HelloReply(reason=reason),
    "/netdfl.v1.Meeting/Meet": lambda reason: Answer(refusal=reason),
}


class Gatekeeper(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """The check of every call at a server, before anything of the call is read."""

    def __init__(self, objection: Callable[[Mapping[str, str | bytes]], str], refused: Callable[[str], None]) -> None:
        """Refuse calls to whose metadata there is an `objection`; `refused` is called with each of them."""
        self._objection, self._refused = objection, refused

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Let a call through, or refuse it."""
        told: Iterable[tuple[str, str | bytes]] = handler_call_details.invocation_metadata or ()
        if not (reason := self._objection(dict(told))):
            return await continuation(handler_call_details)
        method = handler_call_details.method

        async def refuse(unread: object, context: Any) -> None:
            self._refused(f"a call of {plainly(method)}: {reason} (from {caller(str(context.peer()))})")
            if method not in _ANSWERS:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)
            await context.write(_ANSWERS[method](reason).SerializeToString())

        return grpc.stream_stream_rpc_method_handler(refuse)
