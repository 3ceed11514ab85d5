"""The routes of the server: a page of all runs, a page of each run with updates and logs, and orders to change runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from netdfl.collection.listing import ListRequest
from netdfl.core.errors import InputError, NetdflError
from netdfl.record.holder import ask_to_stop
from netdfl.report.html import fill
from netdfl.web.folder import RunFolder
from netdfl.web.guard import METRICS
from netdfl.web.orders import MOST_BYTES, RepeatOrder, read_label_order, read_repeat_order
from netdfl.web.repeat_pages import RepeatPages
from netdfl.web.scrape import MetricsFeed
from netdfl.web.watch import RunFeed, last_lines, log_tail

NODE = re.compile("[0-9]{1,9}")
POLICY = "default-src 'none'; img-src data:; connect-src 'self'"


def make_app(folder: RunFolder, token: str, *, write: bool = False) -> Starlette:
    """Return an application that answers about the runs of `folder`, at paths below `/TOKEN/`.

    With `write`, pages may also change labels of runs, throw runs away, and repeat runs with other values. Runs that a
    page has started end with the application.
    """
    pages, run = _Pages(folder, token, write), f"/{token}/run/{{run}}"
    changing = [
        Route(f"{run}/labels", pages.label, methods=["POST"]),
        Route(f"{run}/throw_away", pages.throw_away, methods=["POST"]),
        Route(f"{run}/form", pages.form),
        Route(f"{run}/check", pages.check, methods=["POST"]),
        Route(f"{run}/repeat", pages.repeat, methods=["POST"]),
    ]
    return Starlette(
        routes=[
            Route(f"/{token}/", pages.all_runs),
            Route(f"/{token}/runs", pages.listed),
            Route(f"/{token}/tables", pages.tables),
            Route(f"/{token}/curves", pages.curves),
            Route(METRICS, pages.metrics),
            Route(f"/{token}{METRICS}", pages.metrics),
            Route(f"{run}/", pages.page),
            Route(f"{run}/events", pages.events),
            Route(f"{run}/log/{{node}}", pages.log),
            Route(f"{run}/logs", pages.logs),
            Route(f"{run}/stop", pages.stop, methods=["POST"]),
            *(changing if write else []),
        ],
        lifespan=pages.living,
    )


class _Pages:
    """The handlers of the server's routes: each public method answers one kind of request."""

    def __init__(self, folder: RunFolder, token: str, write: bool) -> None:
        self._folder, self._token, self._write = folder, token, write
        self._watched: dict[str, RunFeed] = {}
        self._scraped, self._scraping = MetricsFeed(folder), asyncio.Lock()
        self._repeats = RepeatPages(folder)
        self._comparing = asyncio.Lock()  # one comparison at a time takes a processor from what else is answered

    @asynccontextmanager
    async def living(self, app: Starlette) -> AsyncIterator[None]:
        """Do nothing until the server ends, then end the runs that pages started."""
        try:
            yield
        finally:
            await self._repeats.runs.aclose()

    async def _path(self, request: Request) -> Path | None:
        return await asyncio.to_thread(self._folder.find, request.path_params["run"])

    async def all_runs(self, request: Request) -> Response:
        if self._folder.only is not None:
            return RedirectResponse(f"/{self._token}/run/{self._folder.only}/")
        data = {**_empty("runs"), "write": self._write}
        return HTMLResponse(fill(data, POLICY, f"/{self._token}/", "runs.js"))

    async def listed(self, request: Request) -> Response:
        given = request.query_params
        asked = ListRequest(
            filter=given.get("filter", ""),
            sort=given.get("sort", "") or "started",
            down=given.get("order", "down") == "down",
            by=given.get("by", ""),
            archived=given.get("archived", "") == "yes",
            columns=[each for each in given.get("columns", "").split(",") if each],
        )
        skip = int(given["skip"]) if NODE.fullmatch(given.get("skip", "")) else 0
        return _json(await asyncio.to_thread(self._folder.listed, asked, skip))

    async def tables(self, request: Request) -> Response:
        return _json(await asyncio.to_thread(self._folder.tables))

    async def curves(self, request: Request) -> Response:
        ids = [each for each in request.query_params.get("runs", "").split(",") if each]
        async with self._comparing:
            found = await asyncio.to_thread(self._folder.compared, ids)
        return _json(found)

    async def metrics(self, request: Request) -> Response:
        async with self._scraping:
            return PlainTextResponse(await asyncio.to_thread(self._scraped.text))

    async def page(self, request: Request) -> Response:
        path = await self._path(request)
        if path is None:
            return _none()
        data = {**_empty(path.name), "many": self._folder.only is None}
        return HTMLResponse(fill(data, POLICY, f"/{self._token}/run/{request.path_params['run']}/"))

    async def events(self, request: Request) -> Response:
        path = await self._path(request)
        if path is None:
            return _none()
        watched = self._watched.setdefault(request.path_params["run"], RunFeed(path))
        return StreamingResponse(watched.events(), media_type="text/event-stream")

    async def log(self, request: Request) -> Response:
        path, node = await self._path(request), request.path_params["node"]
        if not NODE.fullmatch(node):
            return _none()
        try:
            text = None if path is None else await asyncio.to_thread(log_tail, path, int(node))
        except InputError as error:
            return PlainTextResponse(str(error), 409)
        return _none() if text is None else PlainTextResponse(text)

    async def logs(self, request: Request) -> Response:
        path = await self._path(request)
        return _none() if path is None else _json(to_json(await asyncio.to_thread(last_lines, path)))

    async def stop(self, request: Request) -> Response:
        path = await self._path(request)
        asked = path is not None and await asyncio.to_thread(ask_to_stop, path)
        return PlainTextResponse("asked" if asked else "nothing runs there that could be asked", 200 if asked else 409)

    async def label(self, request: Request) -> Response:
        body, run = await _body(request), request.path_params["run"]
        return await _ordered(lambda: self._folder.label(run, read_label_order(body)))

    async def throw_away(self, request: Request) -> Response:
        return await _ordered(lambda: str(self._folder.throw_away(request.path_params["run"])))

    async def form(self, request: Request) -> Response:
        return await _ordered(lambda: to_json(self._repeats.form(request.path_params["run"])))

    async def check(self, request: Request) -> Response:
        return await self._repetition(request, self._repeats.check)

    async def repeat(self, request: Request) -> Response:
        return await self._repetition(request, self._repeats.begin)

    async def _repetition(self, request: Request, work: Callable[[str, RepeatOrder], Awaitable[object]]) -> Response:
        try:
            order = read_repeat_order(await _body(request))
            return _json(to_json(await work(request.path_params["run"], order)))
        except NetdflError as error:
            return PlainTextResponse(str(error), 409)


async def _body(request: Request) -> bytes:
    """Return the body of a request, but at most one byte more than the largest permitted body."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            break
    return body[: MOST_BYTES + 1]


async def _ordered(order: Callable[[], str | bytes]) -> Response:
    """Call `order` in a thread; answer a request with its result as text or JSON, or with the reason why it failed."""
    try:
        found = await asyncio.to_thread(order)
        return PlainTextResponse(found) if isinstance(found, str) else _json(found)
    except NetdflError as error:
        return PlainTextResponse(str(error), 409)


def _json(data: bytes) -> Response:
    return Response(data, media_type="application/json")


def _none() -> Response:
    return PlainTextResponse("there is no such run here", 404)


def _empty(title: str) -> dict[str, object]:
    """Return the data of an empty page, which loads everything else from its address."""
    head = {"title": title, "subtitle": "", "verdict": "opening", "reasons": [], "numbers": [], "footer": ""}
    return {"head": head}
