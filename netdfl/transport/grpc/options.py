"""The connection options of the gRPC transport: pinned by the scenario, recorded with the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from netdfl.core.bounds import CALLS_BESIDE, STREAMS_A_PAIR, STREAMS_BESIDE, connections_for
from netdfl.core.units import Bound, NonNegativeInt, PositiveInt, SizeBytes, TimeNs

_MS = 1_000_000
_S = 1_000_000_000
_STREAMS = STREAMS_A_PAIR + STREAMS_BESIDE
"""The most open calls of one connection between two processes with one node each."""
_SMALL = 64
"""The number of processes that a server assumes if the size of the fleet is not known."""
_Bytes: TypeAlias = Annotated[SizeBytes, Bound(ge=1)]
_Span: TypeAlias = Annotated[TimeNs, Bound(ge=_MS)]


def patient(most_s: int, streams: int, calls: int, connections: int) -> list[tuple[str, int]]:
    """Return gRPC server options that let calls wait up to `most_s` seconds while the server is busy.

    By default gRPC cancels a call that has waited for 30 s, and some calls when a thousand wait. A large fleet reaches
    both limits.

    Args:
        most_s: the longest time in s that a call waits.
        streams: the most open calls of one connection.
        calls: the most calls, of all connections, that wait until the server looks at them.
        connections: the most connections.
    """
    return [
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_concurrent_streams", streams),
        ("grpc.server.max_pending_requests", calls),
        ("grpc.server.max_pending_requests_hard_limit", 2 * calls),
        ("grpc.server_max_unrequested_time_in_server", most_s),
    ]


@dataclass(frozen=True, kw_only=True)
class GrpcOptions:
    """The timers, windows and limits of gRPC connections, the same on each node.

    Attributes:
        max_message: the largest frame of a message. By default the fleet sets it from the scenario's model.
        frame_max: the largest frame that travels whole on an open stream; a larger one is sent in chunks.
        chunk: the size of a chunk. Larger ones block the event loop longer, smaller ones cost more calls.
        write_buffer: how many bytes of a call gRPC takes before a write must wait.
        lookahead: how many bytes a receiver reads ahead of what it has taken. The window is fixed, because probing the
            path at each read makes a round on loopback 5 % slower. A link with a larger product of bandwidth and delay
            needs a larger window.
        queue_messages: the most messages that wait for one destination; one is always let in.
        queue_bytes: the most bytes that wait for one destination.
        streams: how many calls one connection may have open at a time; 0: as many as the pairs of nodes need that share
            it.
        calls: how many calls of all connections may wait until a process looks at them; 0: as many as the fleet needs.
        connections: how many connections a server may have; 0: as many as the fleet needs, and 192 of strangers.
        waiting_calls: how many calls of one sender a node keeps waiting for room; it refuses more.
        call_deadline: the time after which a call without an answer has failed. A receiver waits half of it for room.
        close_grace: the time that queued messages have to leave when a node ends.
        keepalive: the time after which an idle connection is pinged.
        keepalive_timeout: the time after which a connection is closed if the other system acknowledges nothing (TCP's
            user timeout). Messages under way on it fail. The scenario sets a longer time where packets are lost. A
            process that is stopped while its system runs on is given up by gRPC, after a minute without an answer to
            a ping.
        backoff_initial: the pause after the first failed attempt to connect; later pauses are longer.
        backoff_min: the time that one attempt to connect may take.
        backoff_max: the longest pause between attempts.
    """

    max_message: _Bytes = 64 * 1024 * 1024
    frame_max: _Bytes = 1024 * 1024
    chunk: _Bytes = 512 * 1024
    write_buffer: _Bytes = 1024 * 1024
    lookahead: _Bytes = 4 * 1024 * 1024
    queue_messages: PositiveInt = 64
    queue_bytes: _Bytes = 256 * 1024 * 1024
    streams: NonNegativeInt = 0
    calls: NonNegativeInt = 0
    connections: NonNegativeInt = 0
    waiting_calls: PositiveInt = 4
    call_deadline: _Span = 60 * _S
    close_grace: _Span = 500 * _MS
    keepalive: _Span = 2 * _S
    keepalive_timeout: _Span = 2 * _S
    backoff_initial: _Span = 100 * _MS
    backoff_min: _Span = 5 * _S
    backoff_max: _Span = 500 * _MS

    def channel(self) -> list[tuple[str, int]]:
        """Return the options of a channel: a separate TCP connection, which is pinged even while idle."""
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
        """Return the options of a server: it allows the channels' pings, and rejects messages above the size limit."""
        largest_call = max(min(self.frame_max, self.max_message), self.chunk) + 4096
        return [
            ("grpc.keepalive_time_ms", self.keepalive // _MS),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout // _MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", max(1, self.keepalive // _MS // 2)),
            ("grpc.http2.max_ping_strikes", 0),
            ("grpc.so_reuseport", 0),
            *patient(
                -(-self.call_deadline // _S),
                self.streams or _STREAMS,
                self.calls or CALLS_BESIDE,
                self.connections or connections_for(_SMALL),
            ),
            ("grpc.max_receive_message_length", largest_call),
            ("grpc.http2.lookahead_bytes", self.lookahead),
            ("grpc.http2.bdp_probe", 0),
        ]
