"""The closing of connections on which no complete request arrives in time.

uvicorn closes a connection that is silent after an answer, but waits without end for the first request and for the
rest of a begun one: any client could hold as many connections as the process may open.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""Seconds to wait for the rest of a request."""
BEGUN = (h11.IDLE, h11.SEND_BODY)
"""States of a connection in which the client has not sent a complete request."""


class ImpatientProtocol(H11Protocol):
    """The protocol of uvicorn with a limit, `REQUEST_S`, on the wait for a complete request."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the time limit for the first request."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Parse received data; start the time limit for the rest of a request, or cancel it after a complete one."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        super().connection_lost(exc)
        self._stop_waiting()

    def _watch(self) -> None:
        if self.conn.their_state not in BEGUN:
            self._stop_waiting()
        elif self._late is None:
            self._late = self.loop.call_later(REQUEST_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self.transport.abort()
