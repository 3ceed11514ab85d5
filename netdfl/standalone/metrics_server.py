"""A server for Prometheus that strangers may call as well: bounded in connections, in time and in what it reads."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from io import BytesIO, StringIO
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

MOST_CONNECTIONS = 8
"""The most connections at a time. For a further one, the oldest is closed, so that silent callers keep nobody out."""
SILENCE_S = 5.0
"""Seconds that a connection may say nothing."""
MOST_HEAD = 1 << 14
"""The most bytes that are read of a request."""


class BoundedServer(ThreadingMixIn, WSGIServer):
    """A server with a thread for each of at most `MOST_CONNECTIONS` connections, which prints nothing."""

    daemon_threads = True
    request_queue_size = 8 * MOST_CONNECTIONS

    def __init__(self, host: str, port: int) -> None:
        """Listen at `host` and `port`. Raises OSError."""
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._open: list[Any] = []
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family, _, _, _, address = found[0]
        super().__init__((str(address[0]), port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, after closing the oldest connections if there are too many."""
        while not self._places.acquire(timeout=0.01):
            for oldest in self._open[:1]:
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        self._open.append(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, so that another one can be accepted in its place."""
        self._open.remove(request)
        super().shutdown_request(request)
        self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing, for any caller can make a request fail."""


class _Handler(WSGIRequestHandler):
    def setup(self) -> None:
        """Read only the head of the request; the server ignores the body."""
        super().setup()
        self.connection.settimeout(SILENCE_S)
        head = b""
        while b"\r\n\r\n" not in head and (more := self.connection.recv(MOST_HEAD - len(head))):
            head += more
        self.rfile = BytesIO(head)

    def get_stderr(self) -> StringIO:
        """Return a buffer that nobody reads, in place of the standard error on which failed requests are reported."""
        return StringIO()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""
