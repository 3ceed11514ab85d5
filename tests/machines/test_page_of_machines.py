"""A fleet on machines as a person follows it: its page while it runs, its report, its tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

import netdfl
from netdfl.testing.world_bench import Bench, Keys, Options
from netdfl.testing.world_faults import GOSSIP
from tests.machines.separated import Separated, missing
from tests.warm import all_warm
from tests.web.web_server import ask, started

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "they can be made here")
FLEET: Keys = GOSSIP | {
    "nodes": 3,
    "rounds": 20,
    "links": {"default": {"latency": "90ms"}},
    "evaluation": {"every": 10},
    "wait": {"deadline": "none"},
}


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    late = {"fidelity": {"relative": 100, "slack": "100s"}}
    with Separated(2) as machines:
        world = {"kind": "tests.machines.separated:SEPARATED", "machines": machines.told, **late}
        with Bench(Options(world=world)) as bench, all_warm():
            yield bench


def followed(page: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What a run's page is told until the run is over: states of the fleet, and data."""
    parts, told = urlsplit(page), dict[str, list[dict[str, Any]]](status=[], data=[])
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=100)
    connection.request("GET", f"{parts.path}events")
    name = ""
    for line in connection.getresponse():
        key, _, said = line.decode().strip().partition(": ")
        name = said if key == "event" else name
        if name == "end":
            break
        if key == "data":
            told.setdefault(name, []).append(json.loads(said))
    connection.close()
    return told["status"], told["data"]


def test_its_page_and_its_report_say_what_its_record_says(bench: Bench) -> None:
    with started("serve", bench.folder, "--no-browser") as (address, _):
        running = bench.start("page", bench.file("page", FLEET), "--no-page")
        running.until_round(1)
        _, text = ask(address, f"{urlsplit(address).path}runs")
        (row,) = json.loads(text)["runs"]
        page = f"{address}run/{row['id']}/"
        statuses, data = followed(page)
        ended = running.wait()
    assert ended.code == 0, ended.text
    assert row["state"] == "running"
    assert [each["node"] for each in statuses[0]["nodes"]] == [0, 1, 2]
    ((recorded, rounds),) = netdfl.open_run(ended.path).rows("SELECT count(*), max(round) + 1 FROM messages")
    assert (recorded, rounds) == (3 * 2 * 20, 20)
    counts = [each["counts"]["sent"][-1] for each in data if "counts" in each]
    assert counts == sorted(counts)
    assert counts[-1] == recorded
    assert [each["head"]["verdict"] for each in data if "head" in each][-1] == ended.result["verdict"]
    for made, words in (("report.html", ["report"]), ("m.csv", ["export", "messages", "--format=csv", "--out=m.csv"])):
        command = [sys.executable, "-m", "netdfl", words[0], str(ended.path), *words[1:]]
        done = subprocess.run(command, cwd=ended.path, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (ended.path / made).stat().st_size > recorded
    lines = (ended.path / "m.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + recorded


@pytest.mark.soak  # test_in_browser.py follows a live run
def test_run_with_a_page_serves_its_fleet_to_the_end(bench: Bench) -> None:
    out = bench.folder / "run"
    with started("run", bench.file("web", FLEET), "--web", "--no-page", "--out", out) as (page, process):
        statuses, data = followed(page)
        process.communicate(timeout=60)
    assert process.returncode == 0
    ended = netdfl.open_run(out)
    assert [each["node"] for each in statuses[0]["nodes"]] == [0, 1, 2]
    assert data[0]["head"]["verdict"] != ended.result["verdict"]
    assert [each["head"]["verdict"] for each in data if "head" in each][-1] == ended.result["verdict"]
    assert [each["counts"]["sent"][-1] for each in data if "counts" in each][-1] == 3 * 2 * 20
    assert sorted(node for nodes in ended.result["links"]["machines"].values() for node in nodes) == [0, 1, 2]
