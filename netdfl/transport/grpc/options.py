"""The connection options of the gRPC transport: pinned by the scenario, recorded with the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from netdfl.core.units import Bound, PositiveInt, SizeBytes, TimeNs

_MS = 1_000_000
_S = 1_000_000_000
_MOST = 2**31 - 1
_Bytes: TypeAlias = Annotated[SizeBytes, Bound(ge=1)]
_Span: TypeAlias = Annotated[TimeNs, Bound(ge=_MS)]


def patient(most_s: int) -> list[tuple[str, int]]:
    """The arguments of a server that lets a call wait for it up to `most_s` where it is busy, however many do.

    Left to itself gRPC cancels one after 30 s, and some where a thousand wait: a large fleet comes to both.
    """
    return [
        ("grpc.server.max_pending_requests", _MOST),
        ("grpc.server.max_pending_requests_hard_limit", _MOST),
        ("grpc.server_max_unrequested_time_in_server", most_s),
    ]


@dataclass(frozen=True, kw_only=True)
class GrpcOptions:
    """Values of gRPC's own timers, windows and limits, the same on every node.

    `max_message` bounds one message's frame; at its default the fleet sets it from the scenario's model. A frame up to
    `frame_max` travels whole on an open stream, a larger one in pieces of `chunk` (larger pieces stall the event loop
    for longer, smaller ones cost more calls). `queue_messages` and `queue_bytes` bound what waits for one destination;
    one message is always let in. A receiver reads up to `lookahead` ahead of what it has taken: the window is fixed,
    for probing the path on every read costs a round on loopback 5 %; a link of more bandwidth times delay than that
    needs a larger one. A connection on which nothing is acknowledged by the other system for `keepalive_timeout` is
    closed (TCP's user timeout), and what is under way on it fails; the scenario waits longer where packets are lost. A
    process that is stopped while its system goes on is given up by gRPC itself, after a minute without an answer to a
    ping. An idle connection is pinged every `keepalive`. gRPC takes up to `write_buffer` of a call before a write has
    to wait. A node keeps up to `waiting_calls` of one sender waiting for room, and refuses more. A call that is not
    answered within `call_deadline` has failed; half of it is the time that a receiver waits for room. What is queued
    when a node ends has `close_grace` to leave. One attempt to connect may take `backoff_min`; after a failed one
    `backoff_initial` passes, then more each time, up to `backoff_max`.
    """

    max_message: _Bytes = 64 * 1024 * 1024
    frame_max: _Bytes = 1024 * 1024
    chunk: _Bytes = 512 * 1024
    write_buffer: _Bytes = 1024 * 1024
    lookahead: _Bytes = 4 * 1024 * 1024
    queue_messages: PositiveInt = 64
    queue_bytes: _Bytes = 256 * 1024 * 1024
    waiting_calls: PositiveInt = 4
    call_deadline: _Span = 60 * _S
    close_grace: _Span = 500 * _MS
    keepalive: _Span = 2 * _S
    keepalive_timeout: _Span = 2 * _S
    backoff_initial: _Span = 100 * _MS
    backoff_min: _Span = 5 * _S
    backoff_max: _Span = 500 * _MS

    def channel(self) -> list[tuple[str, int]]:
        """The arguments of a channel: one TCP connection of its own, pinged when it is idle too."""
        return [
            ("grpc.keepalive_time_ms", self.keepalive // _MS),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout // _MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", self.backoff_initial // _MS),
            ("grpc.min_reconnect_backoff_ms", self.backoff_min // _MS),
            ("grpc.max_reconnect_backoff_ms", self.backoff_max // _MS),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_send_message_length", -1),
            ("grpc.http2.write_buffer_size", self.write_buffer),
            ("grpc.http2.bdp_probe", 0),
        ]

    def server(self) -> list[tuple[str, int]]:
        """The arguments of a server: it allows the channels' pings and reads no call above the limit."""
        largest_call = max(min(self.frame_max, self.max_message), self.chunk) + 4096
        return [
            ("grpc.keepalive_time_ms", self.keepalive // _MS),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout // _MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", max(1, self.keepalive // _MS // 2)),
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.so_reuseport", 0),
            *patient(-(-self.call_deadline // _S)),
            ("grpc.max_receive_message_length", largest_call),
            ("grpc.http2.lookahead_bytes", self.lookahead),
            ("grpc.http2.bdp_probe", 0),
        ]
