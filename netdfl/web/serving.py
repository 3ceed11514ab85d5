"""Serve runs on this machine until told to end."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from netdfl.core.errors import InputError

HOST = "127.0.0.1"
MISSING = "a page that is served needs Starlette and uvicorn: pip install 'netdfl[web]'"


def serve(root: Path, port: int = 0, *, say: Callable[[str], None] = print, open_browser: bool = True) -> None:
    """Serve the runs at or below `root` on the loopback until Ctrl-C; `port` 0 is a free one.

    Raises:
        InputError: there is no such folder, the port is taken, or what serving needs is not installed.
    """
    asyncio.run(_serve(root, port, say, open_browser, None))


def serve_beside(root: Path, say: Callable[[str], None]) -> None:
    """Serve until the standard input ends, and then until each page has got the last of it."""
    asyncio.run(_serve(root, 0, say, False, sys.stdin.fileno()))


async def _serve(root: Path, port: int, say: Callable[[str], None], open_browser: bool, lives_by: int | None) -> None:
    try:
        import uvicorn

        from netdfl.web.app import make_app
    except ImportError as error:
        raise InputError(MISSING) from error
    from netdfl.web.access import Guard
    from netdfl.web.folder import Folder

    if lives_by is not None:
        await _made(root)
    folder, token = Folder(root), secrets.token_urlsafe(24)
    bound = _bind(port)
    port = bound.getsockname()[1]
    address = f"http://{HOST}:{port}/{token}/" + (f"run/{folder.only}/" if folder.only else "")
    app = Guard(make_app(folder, token), port, token)
    config = uvicorn.Config(
        app,
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
    if open_browser and has_desktop():
        import webbrowser

        webbrowser.open(address)
    await server.serve(sockets=[bound])


async def _made(root: Path) -> None:
    """Wait until a run that begins has written what it is."""
    from netdfl.web.folder import is_run

    for _ in range(600):
        if is_run(root):
            return
        await asyncio.sleep(0.05)


def _ended(server: object, fd: int) -> None:
    """End the server at the end of its input."""
    if not os.read(fd, 1 << 10):
        server.should_exit = True  # type: ignore[attr-defined]
        asyncio.get_running_loop().remove_reader(fd)


def _bind(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
        bound.listen()
    except OSError as error:
        bound.close()
        raise InputError(f"port {port} can't be had: {error.strerror}; name another with --port") from error
    return bound


def has_desktop() -> bool:
    """Whether somebody sits before this machine."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
