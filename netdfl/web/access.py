"""Who may ask: whoever has the address with its secret, from this machine, by a page that came from there."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
"""Beside what the page itself allows: no other page frames it, reads it, or learns its address from it."""


class Guard:
    """Lets a request through to `app` if its `Host` and `Origin` are ours and its path begins with the secret.

    A page of elsewhere that was led to this port by a name of its own has another `Host`; one that sends a request here
    has another `Origin`.
    """

    def __init__(self, app: App, port: int, token: str) -> None:
        """Guard `app`, which answers at `port`."""
        self._app, self._token = app, token
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        refused = self._refused(scope)
        if refused:
            await _refuse(send, refused)
            return

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        await self._app(scope, receive, sent)

    def _refused(self, scope: Scope) -> str:
        headers = [(name.lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        hosts = [value for name, value in headers if name == b"host"]
        origins = [value for name, value in headers if name == b"origin"]
        sites = [value for name, value in headers if name == b"sec-fetch-site"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return "this address answers to its own name alone"
        if any(origin != f"http://{hosts[0]}" for origin in origins):
            return "a page of another origin may not ask here"
        if scope["method"] not in ("GET", "HEAD") and not origins:
            return "only the page itself may order something"
        if any(site not in ("same-origin", "none") for site in sites):
            return "a page of another site may not ask here"
        first = scope["path"].lstrip("/").partition("/")[0]
        if not secrets.compare_digest(first.encode(), self._token.encode()):
            return "the address lacks its secret; copy the whole of it from where it was printed"
        return ""


async def _refuse(send: Send, why: str) -> None:
    head = [(b"content-type", b"text/plain; charset=utf-8"), *HEADERS]
    await send({"type": "http.response.start", "status": 403, "headers": head})
    await send({"type": "http.response.body", "body": why.encode()})
