"""What a server of runs does with those that ask slowly, ask much, or ask nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from netdfl.web.app import make_app
from netdfl.web.folder import RunFolder
from netdfl.web.impatient import ImpatientProtocol

SOON_S = 0.05
Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def slow(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer well after a request is given up that is not whole."""
    await asyncio.sleep(4 * SOON_S)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest_asyncio.fixture
async def connect(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    monkeypatch.setattr("netdfl.web.impatient.REQUEST_S", SOON_S)
    config, state = uvicorn.Config(slow, log_level="critical", lifespan="off"), ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: ImpatientProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server:
        yield lambda: asyncio.open_connection(*server.sockets[0].getsockname())


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\nX: " + b"x" * 1000,
        b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\nhalf",
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\nGET / HT",
    ],
    ids=["nothing", "a line", "no end of the head", "half a body", "half of a second"],
)
async def test_who_never_ends_a_request_is_left(connect: Connect, said: bytes) -> None:
    reader, writer = await connect()
    writer.write(said)
    with suppress(ConnectionResetError):
        await reader.read()  # to the end
    writer.close()


async def test_who_has_asked_is_answered_however_long_that_takes(connect: Connect) -> None:
    reader, writer = await connect()
    for part in (b"GET / HTTP/1.1\r\n", b"Host: here\r\n", b"\r\n") * 2:
        writer.write(part)
    for _ in range(2):
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
    writer.close()


async def get(app: Any, path: str, query: str = "", method: str = "GET") -> tuple[int, bytes]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query.encode()}
    await app({**scope, "headers": [], "root_path": "", "scheme": "http", "server": None}, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def test_pages_are_answered_while_runs_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, may_end = threading.Event(), threading.Event()

    def compare(found: object, root: Path) -> dict[str, object]:
        entered.set()
        assert may_end.wait(30)
        return {}

    monkeypatch.setattr("netdfl.web.folder.compare", compare)
    app = make_app(RunFolder(tmp_path), "token")
    comparing = [asyncio.create_task(get(app, "/token/curves", "runs=a,b")) for _ in range(2)]
    await asyncio.to_thread(entered.wait, 30)
    assert (await get(app, "/token/"))[0] == 200
    assert (await get(app, "/token/runs"))[0] == 200
    assert not any(each.done() for each in comparing)
    may_end.set()
    assert await asyncio.gather(*comparing) == [(200, b"{}")] * 2


@pytest.mark.parametrize("node", ["9" * 5000, "-1", "1.5", "x", "\u0661", "9999999999"])
async def test_the_log_of_no_node_is_not_found(tmp_path: Path, node: str) -> None:
    app = make_app(RunFolder(tmp_path), "token")
    assert (await get(app, f"/token/run/none/log/{node}"))[0] == 404
