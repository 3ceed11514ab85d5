"""A page of a run that goes on: how often what it shows is read anew, and what that may take of the machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import pytest

from netdfl.running.run import run
from netdfl.scenario.load import loads
from netdfl.web import watch
from netdfl.web.app import make_app
from netdfl.web.folder import RunFolder
from tests.agreeing import agreeing
from tests.web.test_patience import get

SECONDS = 120
SMALL = agreeing("small", 4, 3, "links: {default: {latency: 5ms}}", compute="10ms")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("followed") / "run"
    run(loads(SMALL), out=made, page=False)
    return made


class SlowRun:
    """A run that goes on for some seconds of a clock of its own; reading it takes `cost_s` of a processor."""

    def __init__(self, path: Path, cost_s: float) -> None:
        self.store, self.cost_s = path / "store", cost_s
        self.now_s, self.cpu_s = 0, 0.0
        self.read: list[int] = []

    def goes_on(self, path: Path) -> bool:
        """Asked once a second: something was written since."""
        self.now_s += 1
        with (self.store / "events-later.jsonl").open("a") as file:
            file.write("\n")
        return self.now_s < SECONDS

    def page_data(self, run: object, *, tolerant: bool) -> dict[str, Any]:
        """What a page would show: here, of which second it is."""
        self.cpu_s += self.cost_s
        self.read.append(self.now_s)
        return {"second": self.now_s}


@pytest.fixture
def slow_run(request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowRun]:
    slow = SlowRun(path, request.param)
    clock = SimpleNamespace(process_time=lambda: slow.cpu_s, monotonic=lambda: float(slow.now_s))
    for name, put in {"time": clock, "is_held": slow.goes_on, "page_data": slow.page_data, "TICK_S": 0}.items():
        monkeypatch.setattr(watch, name, put)
    yield slow
    (slow.store / "events-later.jsonl").unlink()


async def seconds_shown(path: Path) -> list[int]:
    """The seconds of which the data are that a page receives until the run has ended."""
    told = [each.decode() async for each in watch.RunFeed(path).events()]
    return [json.loads(each.split("data: ")[1])["second"] for each in told if each.startswith("event: data")]


@pytest.mark.parametrize("slow_run", [0.02, 0.35], indirect=True)
async def test_a_page_follows_a_small_run_within_seconds(path: Path, slow_run: SlowRun) -> None:
    shown = await seconds_shown(path)
    assert shown == slow_run.read
    assert shown[-1] == SECONDS
    assert max(after - before for before, after in pairwise([0, *shown])) <= 5


@pytest.mark.parametrize("slow_run", [2.0], indirect=True)
async def test_reading_a_large_run_takes_no_more_than_a_tenth_of_a_processor(path: Path, slow_run: SlowRun) -> None:
    shown = await seconds_shown(path)
    assert max(after - before for before, after in pairwise(shown)) <= 21
    assert (len(shown) - 2) * slow_run.cost_s <= 0.1 * SECONDS  # the first and the last are read at once


READERS = [
    *("folder.is_run", "folder.runs_below", "app.ask_to_stop", "app.last_lines"),
    *("watch.read_end", "watch.is_held", "watch.read_form", "watch.sha256", "watch.page_data"),
]
"""What reads files for pages; `sha256` is of the sizes of all of a run's files."""


async def test_nothing_is_read_in_the_thread_that_answers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path / "logs").mkdir()
    (path / "logs/000.log").write_text(watch.MOST_LOG * "x" + "\u00e4 and the end\n")
    folder, here, called = RunFolder(path), threading.current_thread(), set()
    goes_on = iter([True])

    def elsewhere(name: str, reads: Callable[..., Any]) -> Callable[..., Any]:
        def read(*given: Any, **more: Any) -> Any:
            assert threading.current_thread() is not here, name
            called.add(name)
            return next(goes_on, False) if name == "watch.is_held" else reads(*given, **more)

        return read

    for name in READERS:
        monkeypatch.setattr(f"netdfl.web.{name}", elsewhere(name, resolve_name(f"netdfl.web.{name}")))
    monkeypatch.setattr(watch, "TICK_S", 0)
    app, run = make_app(folder, "token"), f"/token/run/{folder.only}"
    assert (await get(app, f"{run}/"))[0] == 200
    status, text = await get(app, f"{run}/log/0")
    assert (status, len(text), text.decode()[-15:]) == (200, watch.MOST_LOG, "x\u00e4 and the end\n")
    assert (await get(app, f"{run}/logs"))[1].startswith(b'[["node 0","xxx')
    assert (await get(app, f"{run}/stop", method="POST"))[0] == 409
    assert (await get(app, "/token/run/other/"))[0] == 404
    feed = watch.RunFeed(path)
    for _ in range(2):  # the second page comes after the end
        assert [each async for each in feed.events()][-1] == watch.event("end", b"null")
    assert called == set(READERS)


@pytest.mark.parametrize("slow_run", [0.02], indirect=True)
async def test_few_updates_wait_for_a_page_that_does_not_read(path: Path, slow_run: SlowRun) -> None:
    feed = watch.RunFeed(path)
    idle = feed.events()
    await anext(idle)
    assert [each async for each in feed.events()][-1] == watch.event("end", b"null")
    late = [each async for each in idle]
    assert len(late) <= watch.MOST_WAITING + 1
    assert f'"second":{SECONDS}'.encode() in late[-2]
    assert late[-1] == watch.event("end", b"null")
