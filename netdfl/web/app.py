"""The addresses that are answered: a page of all runs, a page of each, what is new of it, logs, and `stop`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from netdfl.core.errors import InputError
from netdfl.report.html import fill
from netdfl.web.folder import Folder
from netdfl.web.holder import ask_to_stop
from netdfl.web.watch import Watched, log_tail

POLICY = "default-src 'none'; img-src data:; connect-src 'self'"


def make_app(folder: Folder, token: str) -> Starlette:
    """Answer about the runs of `folder` below `/TOKEN/`."""
    watched: dict[str, Watched] = {}

    def path_of(request: Request) -> Path | None:
        return folder.find(request.path_params["run"])

    async def all_runs(request: Request) -> Response:
        if folder.only is not None:
            return RedirectResponse(f"/{token}/run/{folder.only}/")
        return HTMLResponse(fill(_empty("runs"), POLICY, f"/{token}/", "runs.js"))

    async def listed(request: Request) -> Response:
        return Response(folder.listed(), media_type="application/json")

    async def curves(request: Request) -> Response:
        ids: Sequence[str] = request.query_params.get("runs", "").split(",")
        return Response(folder.compared([each for each in ids if each]), media_type="application/json")

    async def page(request: Request) -> Response:
        path = path_of(request)
        if path is None:
            return _none()
        return HTMLResponse(fill(_empty(path.name), POLICY, f"/{token}/run/{request.path_params['run']}/"))

    async def events(request: Request) -> Response:
        path = path_of(request)
        if path is None:
            return _none()
        of = watched.setdefault(request.path_params["run"], Watched(path))
        return StreamingResponse(of.events(), media_type="text/event-stream")

    async def log(request: Request) -> Response:
        path = path_of(request)
        try:
            text = None if path is None else log_tail(path, request.path_params["node"])
        except InputError as error:
            return PlainTextResponse(str(error), 409)
        return _none() if text is None else PlainTextResponse(text)

    async def stop(request: Request) -> Response:
        path = path_of(request)
        asked = path is not None and ask_to_stop(path)
        return PlainTextResponse("asked" if asked else "nothing runs there that could be asked", 200 if asked else 409)

    run = f"/{token}/run/{{run}}"
    return Starlette(
        routes=[
            Route(f"/{token}/", all_runs),
            Route(f"/{token}/runs", listed),
            Route(f"/{token}/curves", curves),
            Route(f"{run}/", page),
            Route(f"{run}/events", events),
            Route(f"{run}/log/{{node:int}}", log),
            Route(f"{run}/stop", stop, methods=["POST"]),
        ]
    )


def _none() -> Response:
    return PlainTextResponse("there is no such run here", 404)


def _empty(title: str) -> dict[str, object]:
    """A page that gets all that it shows from its address."""
    head = {"title": title, "subtitle": "", "verdict": "…", "reasons": [], "numbers": [], "footer": ""}
    return {"head": head}
