"""The server of runs on this machine.

It answers only requests from this machine, with the secret of the address, by a page that came from it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from netdfl.core.errors import InputError
from netdfl.core.installing import pip_install

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
    from uvicorn import Server

HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)
"""Headers beside the page's own policy: no other page frames it, reads it, or learns its address from it."""


class RequestGuard:
    """A filter that passes on only requests with the right `Host`, `Origin` and secret path.

    A foreign page that was led to this port by a name of its own has another `Host`; one that sends a request here
    has another `Origin`.
    """

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        """Guard the application `app`, which is reachable at `port`."""
        self._app, self._token = app, token
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or refuse it."""
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
        first = scope["path"].lstrip("/").partition("/")[0]
        if not secrets.compare_digest(first.encode(), self._token.encode()):
            return "the address lacks its secret; copy the whole of it from where it was printed"
        return ""


async def _refuse(send: Send, why: str) -> None:
    head = [(b"content-type", b"text/plain; charset=utf-8"), *HEADERS]
    await send({"type": "http.response.start", "status": 403, "headers": head})
    await send({"type": "http.response.body", "body": why.encode()})


HOST = "127.0.0.1"
MISSING = f"a page that is served needs Starlette and uvicorn: {pip_install('starlette', 'uvicorn')}"


def serve(
    root: Path,
    port: int = 0,
    *,
    say: Callable[[str], None] = print,
    open_browser: bool = True,
    write: bool = False,
) -> None:
    """Serve the runs at or below `root` on the loopback until Ctrl-C; `port` 0 is a free one.

    With `write`, the page may change tags and notes of runs, archive them, and throw them away.

    Raises:
        InputError: there is no such folder, the port is taken, or Starlette or uvicorn is not installed.
    """
    asyncio.run(_serve(root, port, say, open_browser, None, write))


def serve_beside(root: Path, say: Callable[[str], None]) -> None:
    """Serve until standard input ends, and then until each open page has received the last data."""
    asyncio.run(_serve(root, 0, say, False, sys.stdin.fileno()))


async def _serve(
    root: Path,
    port: int,
    say: Callable[[str], None],
    open_browser: bool,
    lives_by: int | None,
    write: bool = False,
) -> None:
    try:
        import uvicorn

        from netdfl.web.app import make_app
        from netdfl.web.impatient import ImpatientProtocol
    except ImportError as error:
        raise InputError(MISSING) from error
    from netdfl.web.folder import RunFolder

    if lives_by is not None:
        await _made(root)
    folder, token = RunFolder(root), secrets.token_urlsafe(24)
    bound = _bind(port)
    port = bound.getsockname()[1]
    address = f"http://{HOST}:{port}/{token}/" + (f"run/{folder.only}/" if folder.only else "")
    app = RequestGuard(make_app(folder, token, write=write), port, token)
    config = uvicorn.Config(
        app,
        http=ImpatientProtocol,
        log_level="error",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=3,
        server_header=False,
    )
    server = uvicorn.Server(config)
    if lives_by is not None:
        asyncio.get_running_loop().add_reader(lives_by, lambda: _ended(server, lives_by))
    say(address)
    if open_browser:
        show(address)
    await server.serve(sockets=[bound])


async def _made(root: Path) -> None:
    """Wait until a run that is starting has written its first files."""
    from netdfl.collection.finding import is_run

    for _ in range(600):
        if is_run(root):
            return
        await asyncio.sleep(0.05)


def _ended(server: Server, fd: int) -> None:
    """Stop the server when its standard input ends."""
    if not os.read(fd, 1 << 10):
        server.should_exit = True
        asyncio.get_running_loop().remove_reader(fd)


def _bind(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise InputError(f"port {port} can't be had: {why}; name another with --port") from error


def show(address: str) -> None:
    """Open a page in the browser, if this machine has a desktop."""
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        import webbrowser

        webbrowser.open(address)
