"""The secret of a fleet: every call proves knowledge of it, before a port reads or stores anything of the call.

A caller puts two entries into the metadata of each call: the version of the protocol, and a proof. The secret itself
never travels. A proof is its keyed hash of whoever is called, so that a stranger who listens where a node has left
learns nothing that another port would accept.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc
import grpc.aio

from netdfl.core.types import NodeId
from netdfl.transport.security.credentials import who
from netdfl.transport.security.identity import plainly
from netdfl.transport.v1.data_pb2 import HelloReply
from netdfl.transport.v1.meeting_pb2 import Answer
from netdfl.transport.wire import PROTOCOL_VERSION

Metadata: TypeAlias = tuple[tuple[str, str], ...]
VERSION_KEY, PROOF_KEY = "netdfl-version", "netdfl-proof"
VERSION, SECRET, NOT_OF_THIS_FLEET = "version", "secret", "not of this fleet"
"""The only reasons that a refused caller is given. The record of the port has the details."""
_ANSWERS: Mapping[str, Callable[[str], Any]] = {
    "/netdfl.v1.Node/Hello": lambda reason: HelloReply(reason=reason),
    "/netdfl.v1.Meeting/Meet": lambda reason: Answer(refusal=reason),
}


@dataclass(frozen=True, kw_only=True)
class FleetSecret:
    """The secret of a fleet; without `text` the fleet is open to everybody who reaches its ports.

    `by_address`: everybody knows the exact address at which a node listens, as a supervisor tells it. Proofs then hold
    for this address alone, else for every life of the called node.
    """

    text: str = field(default="", repr=False)
    by_address: bool = True

    def proof(self, callee: NodeId, address: str) -> Metadata:
        """Return the metadata of each call of `callee`, which listens at `address`."""
        version = (VERSION_KEY, str(PROTOCOL_VERSION))
        return (version, (PROOF_KEY, self._digest(callee, address))) if self.text else (version,)

    def objection(self, metadata: Mapping[str, str | bytes], callee: NodeId, address: str) -> str:
        """Return why a call of `callee` at `address` is refused; empty if it is not."""
        if metadata.get(VERSION_KEY) != str(PROTOCOL_VERSION):
            return VERSION
        shown = str(metadata.get(PROOF_KEY, ""))
        if self.text and not hmac.compare_digest(shown.encode(), self._digest(callee, address).encode()):
            return SECRET
        return ""

    def _digest(self, callee: NodeId, address: str) -> str:
        audience = address if self.by_address and callee >= 0 else who(callee)
        return hmac.new(self.text.encode(), audience.encode(), hashlib.sha256).hexdigest()


OPEN = FleetSecret()


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
            self._refused(f"a call of {plainly(method)}: {reason} (from {plainly(str(context.peer()))})")
            if method not in _ANSWERS:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)
            await context.write(_ANSWERS[method](reason).SerializeToString())

        return grpc.stream_stream_rpc_method_handler(refuse)
