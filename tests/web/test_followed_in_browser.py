"""The page of a run that goes on, in a browser: each part of it says of what moment it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from netdfl.record.run import open_run
from netdfl.report.data import page_data
from netdfl.running.run import run
from netdfl.scenario.load import loads
from tests.agreeing import agreeing
from tests.web.conftest import Open
from tests.web.fitting import PHONE, WIDE, check_fits
from tests.web.web_server import started

SLOW = """
schema: netdfl/1
name: slow
nodes: 3
rounds: 30
task: {kind: consensus, dim: 2}
algorithm: dpsgd
topology: ring
links: {default: {latency: 150ms}}
"""
SMALL = agreeing("small", 4, 6, "links: {default: {latency: 5ms}}", compute="10ms")


def test_a_live_run_is_followed_to_its_end(tmp_path: Path, opened: Open) -> None:
    (tmp_path / "slow.yaml").write_text(SLOW)
    out = tmp_path / "run"
    with started("run", tmp_path / "slow.yaml", "--web", "--out", out) as (address, process):
        wide, phone = opened(address), opened(address)
        phone.set_viewport_size({"width": PHONE, "height": 900})
        for page in (wide, phone):
            page.locator("#subtitle", has_text="of 30 rounds done").wait_for()
        assert not (out / "result.json").exists()
        for page in (wide, phone):
            page.locator("#live", has_text="has ended").wait_for()
            ended = open_run(out)
            assert page.inner_text("#counts").startswith(f"{ended.result['messages']['sent']:,} messages sent")
            assert page.inner_text("#verdict strong").lower() == ended.result["verdict"]
            check_fits(page)
        process.communicate(timeout=30)
        assert process.returncode == 0


def test_the_button_stops_a_running_fleet_as_ctrl_c_does(tmp_path: Path, opened: Open) -> None:
    (tmp_path / "long.yaml").write_text(SLOW.replace("rounds: 30", "rounds: 3000"))
    with started("run", tmp_path / "long.yaml", "--web", "--out", tmp_path / "run") as (address, process):
        page = opened(address)
        page.locator("#subtitle", has_text=re.compile("[1-9] of 3000 rounds done")).wait_for()
        page.get_by_role("button", name="stop the run").click()
        page.get_by_text("the run was asked to stop").wait_for()
        page.locator("#verdict", has_text="interrupted").wait_for()
        process.communicate(timeout=60)
        assert process.returncode == 130


def sent(name: str, what: object) -> str:
    return f"event: {name}\ndata: {json.dumps(what)}\n\n"


def test_what_is_older_than_the_headline_says_of_which_round_it_is(tmp_path: Path, browser: Any) -> None:
    """The headline is of round 5 when all else was read in round 2: a reader must not take them for one moment."""
    run(loads(SMALL), out=tmp_path / "run", page=False)
    status = json.loads((tmp_path / "run/fleet.json").read_text())
    (tmp_path / "run/result.json").unlink()
    (tmp_path / "run/fleet.json").write_text(json.dumps(status | {"rounds_done": 2}))
    data = page_data(open_run(tmp_path / "run"))
    data["head"]["state"] = "running"
    events = sent("data", data) + sent("status", status | {"rounds_done": 5, "can_stop": False}) + sent("end", None)
    with started("serve", tmp_path / "run", "--no-browser") as (address, _):
        page = browser.new_page()
        page.route("**/events", lambda route: route.fulfill(content_type="text/event-stream", body=events))
        page.goto(address)
        page.locator("#subtitle", has_text="5 of 6 rounds done").wait_for()
        for width in (WIDE, PHONE):
            page.set_viewport_size({"width": width, "height": 900})
            assert "Time, messages and curves are as of 2 of 6 rounds." in page.inner_text("#live")
            check_fits(page)
        page.close()
