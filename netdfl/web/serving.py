"""The server of runs on this machine.

The server answers only requests from this machine, with the secret that is a part of its address, from its own pages.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from netdfl.core.errors import InputError
from netdfl.core.installing import pip_install
from netdfl.web.guard import RequestGuard

if TYPE_CHECKING:
    from uvicorn import Server

HOST = "127.0.0.1"
MISSING = f"a page that is served needs Starlette and uvicorn: {pip_install('starlette', 'uvicorn')}"


def serve(
    root: Path,
    port: int = 0,
    *,
    say: Callable[[str], None] = print,
    open_browser: bool = True,
    write: bool = False,
    metrics: Path | None = None,
) -> None:
    """Serve the runs at or below `root` on the loopback address until Ctrl-C.

    Args:
        root: a run, or a folder of runs.
        port: the port; 0 takes a free one.
        say: prints a line, such as the address.
        open_browser: open the page in the browser.
        write: let the page change tags and notes of runs, archive them, throw them away, and repeat them.
        metrics: a file with the token that Prometheus must send for `/metrics`; it is created if missing.

    Raises:
        InputError: There is no such folder, the port is taken, or Starlette or uvicorn is not installed.
    """
    if metrics is not None:
        from netdfl.web.scrape import bearer_token

        tokens = [bearer_token(metrics)]
    else:
        tokens = []
    asyncio.run(_serve(root, port, say, open_browser, None, write, tokens))


def serve_beside(root: Path, say: Callable[[str], None]) -> None:
    """Serve the run `root` until standard input ends and each open page has received the last data.

    `say` prints the address.
    """
    asyncio.run(_serve(root, 0, say, False, sys.stdin.fileno()))


async def _serve(
    root: Path,
    port: int,
    say: Callable[[str], None],
    open_browser: bool,
    lives_by: int | None,
    write: bool = False,
    bearers: Sequence[str] = (),
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
    app = RequestGuard(make_app(folder, token, write=write), port, token, bearers)
    config = uvicorn.Config(
        app,
        http=ImpatientProtocol,
        log_level="error",
        access_log=False,
        lifespan="on",
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
    """Wait, for up to 30 s, until a run that is starting has written its first files."""
    from netdfl.collection.finding import is_run

    for _ in range(600):
        if is_run(root):
            return
        await asyncio.sleep(0.05)


def _ended(server: Server, fd: int) -> None:
    """Stop the server when standard input, read through the file descriptor `fd`, ends."""
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
