"""A client of gRPC that is not netdfl's: bare calls, with whatever certificate, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import grpc.aio

from netdfl.transport.grpc.connections import for_node
from netdfl.transport.security.credentials import Credentials
from netdfl.transport.security.secret import OPEN, FleetSecret

HELLO, PUSH, CHUNKS = "/netdfl.v1.Node/Hello", "/netdfl.v1.Node/Push", "/netdfl.v1.Node/PushChunks"


@asynccontextmanager
async def channel(
    address: str, credentials: grpc.ChannelCredentials | None, name: str = ""
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to `address`, where a certificate for `name` is asked for; without credentials, in plain text."""
    options: list[tuple[str, str | int]] = [("grpc.use_local_subchannel_pool", 1)]
    if credentials is None:
        made = grpc.aio.insecure_channel(address, options=options)
    else:
        options.append(("grpc.ssl_target_name_override", name))
        made = grpc.aio.secure_channel(address, credentials, options=options)
    async with made as opened:
        yield opened


def proof(credentials: Credentials, authority: str = "") -> grpc.ChannelCredentials:
    """What a thief of `credentials` shows; it trusts `authority`, by default theirs."""
    return grpc.ssl_channel_credentials(
        (authority or credentials.authority).encode(), credentials.key.encode(), credentials.certificate.encode()
    )


def to(callee: int, address: str = "", secret: FleetSecret = OPEN) -> tuple[tuple[str, str], ...]:
    """The metadata of a call of `callee`, as a member writes it; without a secret, of an open fleet."""
    return for_node(callee), *secret.proof(callee, address)
