"""The filter in front of all pages, which decides who may send requests."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

METRICS = "/metrics"
"""The path for Prometheus. Unlike all other paths it has no secret in it; the request carries a token instead."""
HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
"""Headers of every answer, besides the page's own policy: no other site may frame the page, read it, or learn its
address."""


class RequestGuard:
    """A filter that passes on only requests with the right `Host`, `Origin` and secret path.

    The `Host` differs if a page of another site reaches this port under a domain name of its own; the `Origin` differs
    if such a page sends a request here.
    """

    def __init__(self, app: ASGIApp, port: int, token: str, bearers: Sequence[str] = ()) -> None:
        """Guard the application `app`, which listens on `port` and has the secret `token` in its paths.

        Metrics are also served to a request whose bearer token is `token` or one of `bearers`.
        """
        self._app, self._token = app, token
        self._bearers = [f"Bearer {each}".encode() for each in (token, *bearers)]
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        refused = self._refused(scope)
        if refused:
            await _refuse(send, refused)
            return

        async def sent(message: Message) -> None:
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
        if scope["path"] == METRICS:
            shown = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
            known = [secrets.compare_digest(each, bearer) for each in shown for bearer in self._bearers]
            return (
                "" if len(shown) == 1 and any(known) else "metrics need the token of --metrics FILE, as a bearer token"
            )
        first = scope["path"].lstrip("/").partition("/")[0]
        if not secrets.compare_digest(first.encode(), self._token.encode()):
            return "the address lacks its secret; copy the whole of it from where it was printed"
        return ""


async def _refuse(send: Send, why: str) -> None:
    head = [(b"content-type", b"text/plain; charset=utf-8"), *HEADERS]
    await send({"type": "http.response.start", "status": 403, "headers": head})
    await send({"type": "http.response.body", "body": why.encode()})
