"""Metrics of a served folder: of runs that go on, for whoever shows the token, and for nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.errors import InputError
from netdfl.record.directory import hold
from netdfl.web.app import make_app
from netdfl.web.folder import RunFolder
from netdfl.web.guard import RequestGuard
from netdfl.web.scrape import LEAST_TOKEN, bearer_token
from tests.exports.test_metrics_text import planted

HOST = "127.0.0.1:8000"


def scraped(folder: Path, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    app = RequestGuard(make_app(RunFolder(folder), "secret"), 8000, "secret", ["a token of theirs"])
    given = [(name.encode(), text.encode()) for name, text in ({"host": HOST} | headers).items()]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": given,
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:]).decode()


def test_runs_that_go_on_are_there_by_their_place_and_others_are_not(tmp_path: Path) -> None:
    planted(tmp_path / "runs/ended")
    damaged = planted(tmp_path / "runs/damaged")
    (damaged / "fleet.json").write_text("{")
    live = planted(tmp_path / "runs/deep/live")
    with hold(live), hold(damaged):
        status, text = scraped(tmp_path / "runs", authorization="Bearer a token of theirs")
    assert status == 200
    assert [line for line in text.splitlines() if line.startswith("netdfl_rounds_done")] == [
        'netdfl_rounds_done{run="deep/live"} 3.0'
    ]
    assert "netdfl_rounds_done{" not in scraped(tmp_path / "runs", authorization="Bearer secret")[1]


def test_a_run_that_is_served_alone_is_there_after_its_end_too(tmp_path: Path) -> None:
    run = planted(tmp_path / "one")
    assert 'netdfl_rounds_done{run="one"} 3.0' in scraped(run, "/secret/metrics")[1]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer another"},
        {"authorization": "Basic secret"},
        {"authorization": "Bearer secret", "host": "evil.example"},
        {"authorization": "Bearer secret", "origin": "http://evil.example"},
    ],
)
def test_without_the_token_or_from_elsewhere_nothing_is_told(tmp_path: Path, headers: dict[str, str]) -> None:
    status, text = scraped(planted(tmp_path / "one"), **headers)
    assert (status, "netdfl_" in text) == (403, False)


def test_a_bearer_opens_no_page(tmp_path: Path) -> None:
    assert scraped(planted(tmp_path / "one"), "/runs", authorization="Bearer secret")[0] == 403


def test_a_token_is_made_for_its_owner_alone_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "token"
    made = bearer_token(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert bearer_token(file) == made
    assert len(made) >= LEAST_TOKEN
    file.write_text("x" * LEAST_TOKEN + "\n")
    assert bearer_token(file) == "x" * LEAST_TOKEN
    for wrong in ("x" * (LEAST_TOKEN - 1), "two words of it here", "line\nand another one"):
        file.write_text(wrong)
        with pytest.raises(InputError, match="holds no token"):
            bearer_token(file)
    with pytest.raises(InputError, match="can't be written"):
        bearer_token(tmp_path / "nowhere/token")
