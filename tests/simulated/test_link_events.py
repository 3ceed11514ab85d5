"""Partitions and other changes of links are events of a run: in its table, its report, and said while it goes on."""

from __future__ import annotations

import io
import json
import re
from contextlib import nullcontext

import pytest
from rich.console import Console

from netdfl.running.display import SilentDisplay
from netdfl.running.judged import FinishedRun
from netdfl.running.run import run
from netdfl.scenario.explain.explain import explain
from netdfl.scenario.explain.terminal_tables import show
from netdfl.scenario.load import loads

SCENARIO = """
schema: netdfl/1
name: parted
nodes: 4
rounds: 10
world: {kind: simulated, compute: 1s}
task: quadratic
topology: ring
algorithm: {name: dpsgd, lr: 0.1}
links: {default: {latency: 50ms}}
wait: {deadline: 2s}
events:
- {at: 2.5s, for: 3s, partition: [[0, 1], [2, 3]]}
- {from: 0s, to: 8s, flap: 0->1, up: 50ms, down: 50ms}
- {at_round: 8, for_rounds: 1, link: 2->3, latency: 80ms}
"""


class Said(SilentDisplay):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def view() -> Said:
    return Said()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, view: Said) -> FinishedRun:
    return run(loads(SCENARIO), out=tmp_path_factory.mktemp("parted") / "run", view=nullcontext(view))


def test_they_are_rows_at_their_times(finished: FinishedRun) -> None:
    rows = finished.run.rows("SELECT at_s, kind, details FROM events WHERE node IS NULL AND kind LIKE 'partition%'")
    assert sorted(rows) == [
        (2.5, "partition", '{"entry":0,"where":"0..1 | 2..3","change":"state down_drop"}'),
        (5.5, "partition_ends", '{"entry":0,"where":"0..1 | 2..3","change":null}'),
    ]
    ((began,),) = finished.run.rows("SELECT at_s FROM events WHERE kind = 'link'")
    assert finished.run.rows("SELECT min(at_s) FROM metrics WHERE name = 'round_s' AND round = 7") == [(began,)]


def test_they_are_said_while_the_run_goes_on(finished: FinishedRun, view: Said) -> None:
    assert finished.result["verdict"]
    assert [text for text in view.notes if text.startswith("partition")] == [
        "partition 0..1 | 2..3: state down_drop (2.5s to 5.5s)",
        "partition 0..1 | 2..3 is over",
    ]
    assert len([text for text in view.notes if text.startswith("flap")]) == 2


def test_the_report_lists_a_partition_and_gathers_what_changes_often(finished: FinishedRun) -> None:
    page = (finished.path / "report.html").read_text()
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page[page.index("What happened when") :])
    assert "0..1 | 2..3: state down_drop" in cells
    assert "0-&gt;1: 160 changes until 7.950 s" in cells
    (within,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    bands = {band["name"]: band["spans"] for band in json.loads(within)["bands"]}
    assert bands["partition 0..1 | 2..3"] == [[2.5, 5.5]]


def test_explain_shows_each_with_its_end() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    show(explain(loads(SCENARIO)), console)
    lines = [re.split(r"\s*│\s*", line)[1:-1] for line in console.export_text().splitlines() if "events[" in line]
    assert ["2.5s to 5.5s", "partition", "0..1 | 2..3", "state down_drop", "events[0]"] in lines
    assert ["0s to 7.95s, 80 times", "flap", "0->1", "state down_drop", "events[1]"] in lines
    assert ["round 8", "link", "2->3", "latency 80ms", "events[2]"] in lines


def test_the_compiled_schedule_names_them(finished: FinishedRun) -> None:
    lines = (finished.path / "events.jsonl").read_text().splitlines()
    assert {json.loads(line)["entry"] for line in lines} == {"partition", "flap", "link"}
